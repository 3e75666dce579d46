"""Correlated noise in a fixed order."""
