"""Private minimisers of regularised empirical risks: output perturbation and objective perturbation."""
