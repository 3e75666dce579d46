"""Clipped sums of records' gradients, of any model and any function of a batch to one loss a record."""

from functools import partial

from lethe.errors.names import refuse_old_name

__getattr__ = partial(refuse_old_name, __name__)
