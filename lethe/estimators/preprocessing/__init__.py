"""Preprocessing: transformers that learn from the data and say what that cost, and one that learns nothing."""
