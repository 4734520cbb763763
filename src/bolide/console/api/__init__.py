"""`/api/v1`: the HTTP API, made from the declarations of the operations."""
