"""The rule for nn.MultiheadAttention."""
