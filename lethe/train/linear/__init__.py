"""Training linear models: gradients in closed form, and the loops."""
