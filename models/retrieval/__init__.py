"""Generalised D-retrieval: a function of D minima over a sequence."""
