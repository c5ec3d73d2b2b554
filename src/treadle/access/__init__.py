"""API keys: what each may do, its rate limits and its budget."""
