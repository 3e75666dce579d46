"""Privacy loss distributions on a grid, rounded upwards."""
