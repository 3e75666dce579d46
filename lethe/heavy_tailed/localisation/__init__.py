"""The localised solver for convex losses: full batches, secret batches, and strong convexity by repetition."""
