"""Sparse XOR: the product of two hidden bits."""
