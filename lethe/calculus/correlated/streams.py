r"""Correlated noise step by step: solves $C w = z$ forward, for NumPy arrays and tensors alike; or multiplies, $y = Cg$.

`run.noise.strategies` makes one for a training, which draws z, fresh normal numbers, at each step and adds w to the sum of gradients. A
stream keeps only the earlier noise that later steps still need.

The result that rounding leaves solves $C w = z + e$ with $|e_t|$ at most a few units of rounding of $\sum_s|C_{ts}||w_s|$, however badly
conditioned C is (Higham 2002, Theorem 8.5): what is released is as private as with the noise $z + e$. Of a banded inverse $w = C^{-1}z + e$
with $|e_t|$ at most p + 1 units of $\sum_k|d_k||z_{t-k}|$, and $Cw = z + Ce$, at most $T/d_0$ times as much.

What is kept is a memory of a few rows, each as long as the noise, of which every step takes one weighted sum. A step that is forgotten has
0 in the memory: the rows of later steps then act as rows of a C whose entries in that column are 0. With $C \ge 0$ that C is no larger,
entry by entry, and so no more sensitive.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError


class Row(NamedTuple):
    """A row of C as a stream needs it.

    The weights are of the first rows of the memory. `kept_in` is the row of the memory that keeps this step; None: none does, or each a
    share of it.
    """

    weights: FloatArray
    diagonal: float
    kept_in: int | None


class Stream(ABC):
    r"""Turns independent draws, one a step, into correlated noise. One object serves one run, once, from its first step on.

    With `product` it makes $y_t = \sum_s C_{ts} g_s$ of what it is given instead, keeping that.
    """

    def __init__(self, *, product: bool = False) -> None:
        self.step = 0
        self.memory: Any = None
        self._product = product
        self._row: tuple[Row, Any] | None = None

    def next(self, fresh: Any) -> Any:
        """$w_t$ from $z_t$, of the same shape and kind; what it was given is left as it was. InputError where the strategy has no row."""
        array = fresh if hasattr(fresh, "reshape") else np.asarray(fresh, dtype=np.float64)
        flat = array.reshape(-1)
        noise = self.part(_copy(flat), 0, len(flat))
        self.forward()
        return noise.reshape(array.shape)

    def part(self, fresh: Any, start: int, size: int) -> Any:
        """Some coordinates of $w_t$; `forward` ends the step once all were asked for, each once.

        Those of $z_t$, shape (m,), begin at coordinate `start` of `size`. What is returned stands in their place: an array of its own for
        each piece would take as long as the sum.

        Raises:
            InputError: the strategy has no row for this step.
        """
        if self.memory is None:
            self.memory = _zeros(self.memory_rows, size, fresh)
        (weights, diagonal, kept_in), vector = self._present(fresh)
        memory = self.memory[:, start : start + len(fresh)]
        value = _copy(fresh) if self._product else fresh
        _take_sum(fresh, diagonal if self._product else 1.0 / diagonal, vector, memory[: len(weights)])
        self._keep(memory, value, kept_in)
        return fresh

    def forward(self) -> None:
        """The step is over."""
        self.step, self._row = self.step + 1, None

    def forget(self, steps: int) -> None:
        """So many steps are over of whose noise nothing is known any more."""
        for _ in range(steps):
            if self.memory is not None:
                self._keep(self.memory, 0.0, self._present(self.memory)[0].kept_in)
            self.forward()

    def _present(self, like: Any) -> tuple[Row, Any]:
        """The row of this step, and what each row of the memory is multiplied by, in the kind of `like`."""
        if self._row is None:
            row = self.row(self.step)
            factors = row.weights if self._product else -row.weights / row.diagonal
            self._row = row, like.new_tensor(factors) if hasattr(like, "new_tensor") else factors
        return self._row

    def _keep(self, memory: Any, value: Any, row: int | None) -> None:
        if row is not None:
            memory[row] = value

    @abstractmethod
    def row(self, step: int) -> Row:
        """The row of step number `step`, from 0; InputError where the strategy has none."""

    @property
    @abstractmethod
    def memory_rows(self) -> int:
        """How many rows the memory has."""


class BandedStream(Stream):
    r"""$w_t = \big(z_t - \sum_{k=1}^{p-1} c_k w_{t-k}\big)/c_0$: keeps the last p - 1 outputs, each in the place of the oldest."""

    def __init__(self, coefficients: Sequence[float], *, product: bool = False) -> None:
        super().__init__(product=product)
        self._coefficients = np.asarray(coefficients, dtype=np.float64)

    def row(self, step: int) -> Row:
        """Of step t - k the memory's row t - k modulo p - 1."""
        first, rows = float(self._coefficients[0]), self.memory_rows
        back = np.arange(1, min(step, rows) + 1)
        weights = np.zeros(len(back))
        weights[(step - back) % rows if rows else back] = self._coefficients[back]
        return Row(weights, first, step % rows if rows else None)

    @property
    def memory_rows(self) -> int:
        """p - 1."""
        return len(self._coefficients) - 1


class BufferedStream(Stream):
    r"""$w_t = z_t - \sum_i \omega_i m_i$, then $m_i \leftarrow \theta_i m_i + w_t$: keeps d buffers."""

    def __init__(self, scales: Sequence[float], decays: Sequence[float], *, product: bool = False) -> None:
        super().__init__(product=product)
        self._scales, self._decays = np.asarray(scales, dtype=np.float64), tuple(decays)

    def row(self, step: int) -> Row:
        """The same at every step."""
        return Row(self._scales, 1.0, None)

    def _keep(self, memory: Any, value: Any, row: int | None) -> None:
        for number, decay in enumerate(self._decays):
            memory[number] *= decay
            memory[number] += value

    @property
    def memory_rows(self) -> int:
        """d."""
        return len(self._scales)


class MatrixStream(Stream):
    r"""$w_t = \big(z_t - \sum_{s<t} C_{ts} w_s\big)/C_{tt}$: keeps every output that a later row still uses.

    C is lower-triangular with a positive diagonal, shape (T, T).
    """

    def __init__(self, matrix: FloatArray, *, product: bool = False) -> None:
        super().__init__(product=product)
        self._matrix = matrix
        self._places, self._held = _memory_slots([int(column.nonzero()[0][-1]) for column in matrix.T])

    def row(self, step: int) -> Row:
        """Of an earlier step, where it has a place in the memory, that one."""
        if step >= len(self._matrix):
            raise InputError(
                f"noise: step {step + 1} is beyond the {len(self._matrix)} steps of the strategy.",
                source="run.noise",
                remedy="make a strategy for so many steps.",
            )
        entries = self._matrix[step]
        used = entries[:step].nonzero()[0]
        weights = np.zeros(int(self._places[used].max(initial=-1)) + 1)
        weights[self._places[used]] = entries[used]
        index = int(self._places[step])
        return Row(weights, float(entries[step]), None if index < 0 else index)

    @property
    def memory_rows(self) -> int:
        """As many as the matrix needs, at most T - 1."""
        return self._held


def _memory_slots(until: Sequence[int]) -> tuple[Any, int]:
    """Of each output, last used by row `until`, the row of the memory that keeps it (-1: none), and how many rows there are."""
    slots, free, size = np.full(len(until), -1), list[int](), 0
    ending: dict[int, list[int]] = {}
    for step, last in enumerate(until):
        free += ending.pop(step, [])  # this step's row is read before it is written
        if last > step:
            if not free:
                free, size = [size], size + 1
            slots[step] = free.pop()
            ending.setdefault(last, []).append(int(slots[step]))
    return slots, size


def _take_sum(fresh: Any, factor: float, weights: Any, rows: Any) -> None:
    """In place of what is fresh `factor` times that, and the weighted sum of some rows; of tensors in one pass over the rows."""
    if hasattr(fresh, "addmv_"):
        fresh.addmv_(rows.T, weights, beta=factor)
    else:
        fresh *= factor
        fresh += weights @ rows


def _copy(array: Any) -> Any:
    """A copy, of the same kind; of arrays in float64."""
    return array.clone() if hasattr(array, "clone") else np.array(array, dtype=np.float64)


def _zeros(rows: int, size: int, like: Any) -> Any:
    """Zeros of the kind of `like`, shape (rows, size)."""
    return like.new_zeros((rows, size)) if hasattr(like, "new_zeros") else np.zeros((rows, size))
