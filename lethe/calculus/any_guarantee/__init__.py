"""What must know every kind of guarantee: composition of several kinds, scaling with the noise, and reading back from JSON."""
