"""A generator whose draws are known, so that what a release adds of its noise can be told."""

from typing import Any

import numpy as np


class Constant(np.random.Generator):
    """Every normal number is the same."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def standard_normal(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        return np.full(size, self.value)
