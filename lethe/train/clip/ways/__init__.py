"""Three ways to the gradients of single records."""
