r"""Second derivatives of many records' losses in their scores, as a diagonal and a few terms of rank one.

Linear losses return it to Newton's method (`mechanisms.minimisers`), and to influences. d and v depend on the loss.

$$l_i'' = \mathrm{diag}(d_i) + \sum_f c_{if}\,v_{if}v_{if}^\top$$

Of K scores that is a few times K numbers a record in place of $K^2$, and a product with a direction costs as little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import FloatArray

Floats = NDArray[np.floating[Any]]  # in double or single precision


@dataclass(frozen=True, slots=True, eq=False)
class Curvatures:
    r"""$l_i''$ of records $i = 1, \dots, n$ with k scores.

    Args:
        diagonal: $d_i$, shape (n, k).
        terms: pairs of $c_{if}$, shape (n,), and $v_{if}$, shape (n, k).
    """

    diagonal: Floats
    terms: tuple[tuple[Floats, Floats], ...] = ()

    def dense(self) -> FloatArray:
        """Shape (n, k, k)."""
        outputs = self.diagonal.shape[1]
        total = self.diagonal[:, :, None] * np.eye(outputs)
        for factor, vectors in self.terms:
            total += factor[:, None, None] * vectors[:, :, None] * vectors[:, None, :]
        return total

    def times(self, directions: Floats) -> Floats:
        r"""$l_i''s_i$ for each row $s_i$ of `directions`, shape (n, k)."""
        total = self.diagonal * directions
        for factor, vectors in self.terms:
            total += (factor * np.einsum("nk,nk->n", vectors, directions))[:, None] * vectors
        return total

    def sum(self) -> FloatArray:
        r"""$\sum_il_i''$, shape (k, k)."""
        total = np.diag(self.diagonal.sum(axis=0, dtype=np.float64))
        for factor, vectors in self.terms:
            total += (factor[:, None] * vectors).T @ vectors
        return total

    def scaled(self, unit: float, kind: type[np.floating[Any]]) -> Curvatures:
        """As multiples of `unit`, numbers of type `kind`."""
        terms = tuple(((factor / unit).astype(kind), vectors.astype(kind)) for factor, vectors in self.terms)
        return Curvatures((self.diagonal / unit).astype(kind), terms)
