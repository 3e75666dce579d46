"""Toeplitz strategies: the same few numbers at every step, for any number of steps."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from lethe.calculus.correlated.matrices import blt_column, require_strategy
from lethe.calculus.correlated.streams import BandedStream, BufferedStream
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.noise.base import CorrelatedNoise

MOST_BANDS = 4096
"""More would be kept for every parameter."""


def _listed(value: object) -> object:
    """Lists and arrays as tuples of floats; what else is given is for the field to refuse."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return value
    entries: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    return tuple(float(entry) if type(entry) is int else entry for entry in entries)


_Numbers = Annotated[tuple[float, ...], BeforeValidator(_listed), Field(min_length=1, max_length=MOST_BANDS)]


class BandedToeplitz(CorrelatedNoise):
    r"""$C_{ts} = c_{t-s}$ for $t - s < p$, else 0: $w_t = (z_t - \sum_{k=1}^{p-1} c_k w_{t-k})/c_0$.

    Args:
        coefficients: $c_0 > 0, c_1, \ldots, c_{p-1} \ge 0$.
    """

    kind: ClassVar[str] = "banded_toeplitz"
    summary: ClassVar[str] = "banded Toeplitz noise"
    coefficients: _Numbers

    @model_validator(mode="after")
    def _usable(self) -> BandedToeplitz:
        require_strategy(self.coefficients)
        return self

    def strategy(self, steps: int) -> FloatArray:
        """The first column, shape (T,)."""
        column = np.zeros(steps)
        kept = self.coefficients[:steps]
        column[: len(kept)] = kept
        return column

    def stream(self, *, product: bool = False) -> BandedStream:
        """Keeps the last p - 1 outputs."""
        return BandedStream(self.coefficients, product=product)


class BufferedToeplitz(CorrelatedNoise):
    r"""A buffered linear Toeplitz strategy (BLT): $C_{ts} = c_{t-s}$ with $c_0 = 1$, $c_k = \sum_i \omega_i\theta_i^{k-1}$.

    Args:
        scales: $\omega_i \ge 0$, one for each buffer.
        decays: $\theta_i \in [0, 1)$, as many.
    """

    kind: ClassVar[str] = "buffered_toeplitz"
    summary: ClassVar[str] = "buffered linear Toeplitz noise"
    scales: _Numbers
    decays: _Numbers

    @model_validator(mode="after")
    def _usable(self) -> BufferedToeplitz:
        blt_column(self.scales, self.decays, 1)
        if max(self.scales) > 1e60:
            raise InputError(f"scales: got {max(self.scales):g}; it needs numbers up to 1e60.")
        return self

    def strategy(self, steps: int) -> FloatArray:
        """The first column, shape (T,)."""
        return blt_column(self.scales, self.decays, steps)

    def stream(self, *, product: bool = False) -> BufferedStream:
        """Keeps one buffer for each decay."""
        return BufferedStream(self.scales, self.decays, product=product)
