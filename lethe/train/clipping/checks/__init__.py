"""The clipper's self-check: whether records of a batch influence one another."""
