"""What the server answers, as an OpenAPI document: one table of operations, and the document made of it."""
