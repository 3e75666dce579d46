"""The interface of correlated noise, a strategy as a Run states it; and how large the noise is at each step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from lethe.calculus.correlated.streams import Stream
from lethe.calculus.domains import FloatArray
from lethe.documents.specification import Specification, names_itself

# The square of a growth that no arithmetic survives.
_TOO_MUCH = 1e40


class CorrelatedNoise(Specification, ABC):
    r"""Noise $w = C^{-1} z$ on the sums of gradients, with $z_t \sim N(0, z^2 C^2 I)$ drawn afresh at each step.

    Class attributes:
        kind: the name in a Run document.
        summary: what it is, in a few words.
        any_length: whether it is a strategy for every number of steps; else for its own alone.
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    any_length: ClassVar[bool] = True

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a kind that inherits from another."""
        super().__pydantic_init_subclass__(**kwargs)
        names_itself(cls, "kind")

    def __hash__(self) -> int:
        """Of the kind and its fields."""
        return hash((self.kind, *(getattr(self, name) for name in type(self).model_fields)))

    @abstractmethod
    def strategy(self, steps: int) -> FloatArray:
        """C for so many steps: the first column of a Toeplitz matrix, shape (T,), or a lower-triangular matrix, shape (T, T)."""

    @abstractmethod
    def stream(self, *, product: bool = False) -> Stream:
        """What correlates the draws of one training, from its first step on; `product`: to multiply by C instead of its inverse."""

    def to_document(self) -> dict[str, Any]:
        """{kind: name, ...}."""
        return {"kind": self.kind, **self.model_dump(mode="json")}


def growths(noise: CorrelatedNoise, steps: int) -> FloatArray:
    r"""Each step's noise, where a draw has deviation 1: $\sqrt{(C^{-1}C^{-\top})_{tt}}$, shape (T,), infinity where it overflows."""
    strategy = noise.strategy(steps)
    with np.errstate(over="ignore", invalid="ignore"):
        if strategy.ndim == 2:
            inverse = linalg.solve_triangular(strategy, np.eye(steps), lower=True)
            squares = np.square(inverse).sum(axis=1)
        else:
            squares, stream, total = np.full(steps, math.inf), noise.stream(), 0.0
            for step in range(steps):
                total += float(stream.next(float(step == 0))) ** 2
                if not total < _TOO_MUCH:
                    break
                squares[step] = total
        found = np.sqrt(squares)
    return np.where(np.isfinite(found), found, math.inf)
