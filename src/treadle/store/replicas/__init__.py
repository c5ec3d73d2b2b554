"""The processes that share a store, and the secrets that its keys were made under."""
