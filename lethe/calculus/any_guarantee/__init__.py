"""Operations that need every kind of guarantee: composition of several kinds, scaling with the noise, and reading from JSON."""
