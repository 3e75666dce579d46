"""Pipelines: what everything fitted on the same data costs together, how a budget is divided among steps, and a private search."""
