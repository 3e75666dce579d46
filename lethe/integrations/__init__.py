"""Lethe in other libraries: each integration is optional."""
