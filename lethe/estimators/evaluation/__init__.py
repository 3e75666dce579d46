"""Evaluation: private scores of a model, and descriptions of a table."""
