"""The gradients of a batch's records in one parameter."""
