"""Estimators on tables in blocks: how they are read, what of them is gathered, and which mechanisms can train on them."""
