"""Per-layer rules for per-record gradients: their norms and their clipped sums."""
