"""Moments of gradients: what is known of them, and how they are released."""
