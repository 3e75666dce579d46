"""Correlated noise: a strategy as a Run states it, how large the noise is at each step, and the strategies.

A Run holds one as `noise`. $C^{-1}$ makes the noise w of the steps out of fresh draws z, so that later noise partly cancels earlier;
theorems ask C for its sensitivity, trainers for a stream of w.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BeforeValidator, Field, model_validator
from scipy import linalg

from lethe.calculus.correlated.matrices import MOST_DENSE, blt_column, inverse_column, require_strategy
from lethe.calculus.correlated.streams import BandedStream, BufferedStream, MatrixStream, Stream
from lethe.calculus.domains import FloatArray
from lethe.documents.specification import Specification, names_itself
from lethe.documents.strict import reading_arrays, write_bytes
from lethe.errors import InputError

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
        roots = np.sqrt(squares)
    return np.where(np.isfinite(roots), roots, math.inf)


_REMEDY = "give the .npy file that LowerTriangular.saved wrote, under its own path."
_HEADER = 4096
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

    Examples:
        >>> lethe.noise.BandedToeplitz(coefficients=(1.0, 0.5)).strategy(3).tolist()
        [1.0, 0.5, 0.0]
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
        leading = self.coefficients[:steps]
        column[: len(leading)] = leading
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


class BandedInverse(CorrelatedNoise):
    r"""$C^{-1}$ is Toeplitz, with p diagonals: $w_t = \sum_{k<p}d_kz_{t-k}$. Of two, each step takes back a share of the last step's draw.

    That draw is made again where it is taken back, so that training keeps nothing of two coefficients, of p it keeps the last p - 1 draws.
    Secure noise keeps twice p - 1 numbers, of two coefficients too. Reference: arXiv:2601.22334 (two), 2505.12128.

    Args:
        coefficients: $d_0 > 0$, $d_1, \ldots, d_{p-1} \le 0$, that sum to 0 or more: such as (1, -0.9).
    """

    kind: ClassVar[str] = "banded_inverse"
    summary: ClassVar[str] = "noise of a banded inverse"
    coefficients: _Numbers

    @model_validator(mode="after")
    def _usable(self) -> BandedInverse:
        inverse_column(self.coefficients, 1)
        return self

    def strategy(self, steps: int) -> FloatArray:
        """The first column of C, shape (T,), rounded up."""
        return inverse_column(self.coefficients, steps)

    def stream(self, *, product: bool = False) -> BandedStream:
        """A product with the inverse, which keeps what it is given."""
        return BandedStream(self.coefficients, product=not product)


class LowerTriangular(CorrelatedNoise):
    r"""Any lower-triangular C with a positive diagonal, for exactly as many steps as it has rows: dense, banded, a tree.

    Training keeps every earlier output that a later row uses: up to T - 1 numbers a parameter, of a banded matrix p - 1.

    Args:
        file: a .npy file that holds C, shape (T, T), T <= 4096.
        sha256: of the file's bytes, 64 hexadecimal digits; a file with another hash is refused.
    """

    kind: ClassVar[str] = "lower_triangular"
    summary: ClassVar[str] = "correlated noise of a given matrix"
    any_length: ClassVar[bool] = False
    file: str = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _usable(self) -> LowerTriangular:
        _read(self.file, self.sha256)
        return self

    @classmethod
    def saved(cls, matrix: ArrayLike, path: str | os.PathLike[str]) -> LowerTriangular:
        """Write a matrix to a .npy file, and return the noise that it makes.

        Args:
            matrix: C, shape (T, T).
            path: of the file, which must end in .npy.
        """
        array = require_strategy(matrix)
        if array.ndim != 2:
            raise InputError(f"matrix: got shape {array.shape}; it needs (T, T).", remedy="give a Toeplitz column to BandedToeplitz.")
        file = Path(path)
        if file.suffix != ".npy":
            raise InputError(f"path: got {file}; it needs a name that ends in .npy.")
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        write_bytes(file, buffer.getvalue())
        return cls(file=str(file), sha256=hashlib.sha256(buffer.getvalue()).hexdigest())

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> LowerTriangular:
        """The noise of a matrix that stands in a .npy file, whatever its hash is.

        Args:
            path: of the file.
        """
        return cls(file=str(path), sha256=hashlib.sha256(_content(str(path))).hexdigest())

    def strategy(self, steps: int) -> FloatArray:
        """C, shape (T, T)."""
        matrix = _read(self.file, self.sha256)
        if len(matrix) != steps:
            raise InputError(
                f"noise: the matrix in {self.file} is for {len(matrix)} steps; the run has {steps}.",
                source="noise.file",
                remedy="make a strategy for so many steps.",
            )
        return matrix

    def stream(self, *, product: bool = False) -> MatrixStream:
        """Keeps every output that a later row uses."""
        return MatrixStream(_read(self.file, self.sha256), product=product)


@lru_cache(maxsize=4)
def _read(name: str, digest: str) -> FloatArray:
    """The matrix, read once a process; what is kept is what has the hash."""
    file, content = Path(name), _content(name)
    file_digest = hashlib.sha256(content).hexdigest()
    if file_digest != digest:
        raise InputError(f"sha256: {name} has the hash {file_digest}; the run says {digest}.", source="noise.sha256", remedy=_REMEDY)
    with reading_arrays(file, remedy=_REMEDY):
        matrix = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)  # np.load would take an archive of several, too
    if matrix.ndim != 2 or matrix.dtype != np.float64:
        raise InputError(f"file: {name} holds {matrix.dtype} of shape {matrix.shape}; it needs float64 of shape (T, T).", remedy=_REMEDY)
    read_only = require_strategy(matrix).copy()
    read_only.flags.writeable = False
    return read_only


def _content(name: str) -> bytes:
    """The bytes of a file that may hold a matrix."""
    file = Path(name)
    try:
        size = file.stat().st_size if file.is_file() else None
        content = None if size is None or size > 8 * MOST_DENSE**2 + _HEADER else file.read_bytes()
    except OSError as error:
        raise InputError(f"file: {name} cannot be read: {error.strerror}.", source="noise.file", remedy=_REMEDY) from error
    if content is None:
        why = "there is no such file" if size is None else f"it is larger than a matrix of {MOST_DENSE} steps"
        raise InputError(f"file: {name}: {why}.", source="noise.file", remedy=_REMEDY)
    return content
