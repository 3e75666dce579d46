r"""Noise correlated step by step: $w = C^{-1} z$ solved forward, for NumPy arrays and for tensors alike.

The result that rounding leaves solves $C w = z + e$ with $e$ as small as the rounding of the products in its row, however badly
conditioned C is: what is released is as private as with the noise $z + e$.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError


class Stream(ABC):
    """Turns independent draws, one a step, into correlated noise. One object serves one run, once, from its first step on."""

    def __init__(self) -> None:
        self.step = 0

    def next(self, fresh: Any) -> Any:
        r"""$w_t$ from $z_t$, of the same shape and kind; what it was given is left as it was.

        Raises:
            InputError: the strategy has no row for this step.
        """
        made = self._next(fresh)
        self.step += 1
        return made

    @abstractmethod
    def _next(self, fresh: Any) -> Any: ...

    @property
    @abstractmethod
    def held(self) -> int:
        """The most arrays of the noise's shape that are kept between two steps."""


class BandedStream(Stream):
    r"""$w_t = \big(z_t - \sum_{k=1}^{p-1} c_k w_{t-k}\big)/c_0$: keeps the last p - 1 outputs.

    Args:
        coefficients: $c_0 > 0, c_1, \ldots, c_{p-1}$.
    """

    def __init__(self, coefficients: Sequence[float]) -> None:
        super().__init__()
        self._coefficients = tuple(coefficients)
        self._last: list[Any] = []

    def _next(self, fresh: Any) -> Any:
        made = fresh * 1.0
        for coefficient, earlier in zip(self._coefficients[1:], self._last, strict=False):
            made = _less(made, coefficient, earlier)
        if self._coefficients[0] != 1.0:
            made = made / self._coefficients[0]
        self._last = [made, *self._last][: self.held]
        return made

    @property
    def held(self) -> int:
        """p - 1."""
        return len(self._coefficients) - 1


class BufferedStream(Stream):
    r"""$w_t = z_t - \sum_i \omega_i m_i$, then $m_i \leftarrow \theta_i m_i + w_t$: keeps d buffers.

    Args:
        scales: $\omega_i$.
        decays: $\theta_i$, as many.
    """

    def __init__(self, scales: Sequence[float], decays: Sequence[float]) -> None:
        super().__init__()
        self._scales, self._decays = tuple(scales), tuple(decays)
        self._buffers: list[Any] | None = None

    def _next(self, fresh: Any) -> Any:
        if self._buffers is None:
            made = fresh * 1.0
            self._buffers = [made] * len(self._scales)
            return made
        made = fresh * 1.0
        for scale, buffer in zip(self._scales, self._buffers, strict=True):
            made = _less(made, scale, buffer)
        self._buffers = [decay * buffer + made for decay, buffer in zip(self._decays, self._buffers, strict=True)]
        return made

    @property
    def held(self) -> int:
        """d."""
        return len(self._scales)


class MatrixStream(Stream):
    r"""$w_t = \big(z_t - \sum_{s<t} C_{ts} w_s\big)/C_{tt}$: keeps every output that a later row still uses.

    Args:
        matrix: C, lower-triangular with a positive diagonal, shape (T, T).
    """

    def __init__(self, matrix: FloatArray) -> None:
        super().__init__()
        self._matrix = matrix
        # The last row that uses each output.
        self._until = [int(column.nonzero()[0][-1]) for column in matrix.T]
        self._kept: dict[int, Any] = {}

    def _next(self, fresh: Any) -> Any:
        if self.step >= len(self._matrix):
            raise InputError(
                f"noise: step {self.step + 1} is beyond the {len(self._matrix)} steps of the strategy.",
                source="run.noise",
                remedy="make a strategy for so many steps.",
            )
        row, made = self._matrix[self.step], fresh * 1.0
        for step, earlier in self._kept.items():
            made = _less(made, float(row[step]), earlier)
        made = made / float(row[self.step])
        self._kept[self.step] = made
        self._kept = {step: value for step, value in self._kept.items() if self._until[step] > self.step}
        return made

    @property
    def held(self) -> int:
        """As many as the matrix needs, at most T - 1."""
        waiting, most = 0, 0
        ends = sorted(self._until)
        for step in range(len(ends)):
            waiting += 1
            while ends and ends[0] <= step:
                ends.pop(0)
                waiting -= 1
            most = max(most, waiting)
        return most


def _less(made: Any, factor: float, earlier: Any) -> Any:
    """`made` less a multiple of what was made earlier; of a tensor in place, without another of its size."""
    return made.sub_(earlier, alpha=factor) if hasattr(made, "sub_") else made - factor * earlier
