"""Exact proximal steps of a network's parameters."""
