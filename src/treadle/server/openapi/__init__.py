"""The OpenAPI document, built from one table of operations."""
