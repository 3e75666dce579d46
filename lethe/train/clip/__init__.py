"""Clipped sums of records' gradients, of any model and any function of a batch to one loss a record."""

from typing import NoReturn

from lethe.documents.old_names import refuse_old_name


def __getattr__(name: str) -> NoReturn:
    """Answer a name that moved by an error that says where to."""
    refuse_old_name(__name__, name)
