"""Gaussian noise for the tensors of a network: where it comes from, and when it is paid for from a budget."""
