"""Private search for parameters."""
