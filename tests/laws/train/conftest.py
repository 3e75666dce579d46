"""Fixtures of more than one file of tests of training."""

from looks import the_same_batches_are_looked_at

__all__ = ["the_same_batches_are_looked_at"]
