"""Units of several rows, such as the records of a user or the views of a record: put together, then clipped as one."""

from lethe.train.clipping.units.units import Units

__all__ = ["Units"]
