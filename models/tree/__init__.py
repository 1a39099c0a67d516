"""Path-finding in rooted trees with a chain of thought."""
