"""Liang et al. 2025, Figures 1 and 2."""
