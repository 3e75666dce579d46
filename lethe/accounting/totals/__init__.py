"""Totals: what several releases from the same records cost together."""
