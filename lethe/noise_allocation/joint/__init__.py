"""Noise of least harm when only the last iterate is released: for one position of the record, for pass ends, for any position in a pass."""
