"""Published rates and tables of utility: orders of magnitude, never guarantees."""
