"""Endpoint selection: which end of an arc a selector names."""
