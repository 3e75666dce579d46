"""Clipped sums of records' gradients, of any model and any function of a batch to one loss a record."""
