"""The type of a number of mpmath, which makes its classes when it is imported, so that no type checker knows them."""

from typing import Any

Exact = Any
