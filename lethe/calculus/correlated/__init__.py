"""Correlated noise: strategies of the matrix mechanism, their sensitivity, their error, and the best of them."""
