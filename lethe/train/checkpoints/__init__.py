"""Checkpoints: training that continues after it was interrupted, with no noise drawn twice."""
