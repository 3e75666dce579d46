"""Gaussian noise for the tensors of a network: where it comes from."""
