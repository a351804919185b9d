"""How the store came to be what it is, step by step."""
