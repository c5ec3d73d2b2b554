"""What the server answers, as an OpenAPI document: one table of operations, and the document made of it.

A route that is not in the table fails a test.
"""
