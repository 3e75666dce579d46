"""Clipped sums of records' gradients, of any model and any function of a batch to one loss a record."""

from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import METHODS, Group, Method

__all__ = ["METHODS", "Clipper", "Group", "Method"]
