"""The rule for convolutions."""
