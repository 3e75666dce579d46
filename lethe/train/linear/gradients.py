"""The sum of per-record clipped gradients of a linear model, in closed form: two matrix products and no autograd.

All arithmetic is in float64, whatever the rows are stored in: what rounding adds to a gradient is then known (`gradient_rounding`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.clip_fields import SHORTENING, ClipMethod
from lethe.run.descended import descended_curvature
from lethe.run.losses import LinearLoss
from lethe.run.run import Run
from lethe.train.core.iterates.bounded_iterates import most_records
from lethe.train.core.iterates.projection import inward
from lethe.train.core.samplers import Batch
from lethe.train.linear.links import Link

_MOST_ROWS = 2.0**24
_BLOCK = 256  # products of a score that are added at once
_AT_ONCE = 2**20  # numbers that are held as float64 at once beside rows of another type: 8 MiB


def gradient_rounding(run: Run, loss: LinearLoss, rows: int, parameter_norm: float, *, in_blocks: bool) -> float:
    r"""A bound on how far the computed mean gradient is from the exact one, in loss per parameter unit.

    $$u\frac Kb\,\Big(M(p+8)N + R(k+16) + (D+2k+32)C + 2CK\Big),\qquad u = 2^{-53}$$

    A score, p products added one to another, is off by $\gamma_p\|u_i\|\|x\|$, and moves the gradient by at most $M/R$ times that; then
    come the roundings of the residual, its norm, its factor and its product, and those of a sum over K records (Higham 2002, section 3.1).
    K is `most_records`. K users may have $2^{24}$ rows together, which then stands for the K of the last term.

    Args:
        run: to be carried out.
        loss: of the run, with the number of its classes.
        rows: D, the features of a record, the constant one included.
        parameter_norm: N, a bound on the norm of the parameters.
        in_blocks: whether scores are added up block by block, as `LinearModel` does: $p = 256 + \lceil D/256\rceil$; else p = D.
    """
    most, bound = most_records(run), run.record_bound
    summands = most if run.unit == "record" else _MOST_ROWS
    _, smoothness = descended_curvature(run) or (0.0, 0.0)
    added = min(rows, _BLOCK + math.ceil(rows / _BLOCK)) if in_blocks else rows
    of_scores = smoothness * (added + 8) * parameter_norm + loss.row_norm * (loss.outputs + 16)
    of_sums = (rows + 2 * loss.outputs + 32 + 2.0 * summands) * bound
    return 2.0**-53 * (most / run.batch_size) * (of_scores + of_sums) * (1.0 + 2.0**-40)


def refuse_other_clipping(run: Run) -> None:
    """Refuse a run that says other clipping than `LinearModel` does: all parameters together, by projection or of the loss's envelope.

    Raises:
        InputError: see above.
    """
    if run.clip_method not in SHORTENING or run.clip_groups is not None:
        name, got = ("clip_method", run.clip_method) if run.clip_method not in SHORTENING else ("clip_groups", run.clip_groups)
        raise InputError(
            f"{name}: got {got}; linear models are clipped by projection or envelope, all their parameters together.",
            source=f"run.{name}",
            remedy=f"drop {name}, or train the model by lethe.train.fit.",
        )


class GradientSums(Protocol):
    """A linear model on its training data, wherever these are: `LinearModel` says what is meant."""

    clip_norm: float | None

    def clipped_gradient_sum(self, parameters: Tensor, batch: Batch) -> Tensor:
        """Over a batch, shape (d, k)."""
        ...


class LinearModel:
    r"""A linear model on its training data.

    $$\sum_{i\in B}\mathrm{Clip}_C(u_i r_i^\top) = U_B^\top \mathrm{diag}(c) R_B,\qquad c_i = \min\Big(1, \frac{C}{\|u_i\|\,\|r_i\|}\Big)$$

    With the method "envelope" $r_i$ is the slope of the loss's Lipschitz envelope of bound $C/\|u_i\|$ in the scores, and $c_i = 1$ but for
    rounding.

    Edge cases: a record without gradient ($u_i = 0$ or $r_i = 0$) adds nothing; an empty batch gives zeros; clip_norm None does not clip.

    Args:
        link: gives the residuals $r_i$, shape (k,), from the scores.
        features: $u_i$ as rows, shape (n, d), of any floating-point type.
        targets: shape (n, 1).
        clip_norm: C > 0 on one record's gradient, all parameters together; None: no clipping.
        outputs: k, the columns of the parameters.
        method: "clip" or "envelope".
    """

    __slots__ = ("_features", "_limit", "_link", "_method", "_norms", "_targets", "clip_norm")

    def __init__(
        self,
        link: Link,
        features: Tensor,
        targets: Tensor,
        *,
        clip_norm: float | None,
        outputs: int,
        method: ClipMethod = "clip",
    ) -> None:
        assert method in SHORTENING  # `refuse_other_clipping` has refused the rest
        self._method = method
        self._link = link
        self._features = features
        self._targets = targets
        self._norms = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=torch.float64)
        self.clip_norm = clip_norm
        self._limit = None if clip_norm is None else inward(clip_norm, features.shape[1] + outputs, torch.float64)

    def clipped_gradient_sum(self, parameters: Tensor, batch: Batch) -> Tensor:
        """The sum over the batch, shape (d, k), in loss per parameter unit; every record's share has norm at most clip_norm."""
        total = parameters.new_zeros(parameters.shape[::-1])  # by outputs: BLAS reads a tall table along its rows several times as fast
        for features, targets, norms in self._parts(batch):
            scores = _product(features, parameters)
            if self._method == "envelope" and self._limit is not None:
                residuals = self._link.envelope_residuals(scores, targets, self._limit / norms)
            else:
                residuals = self._link.residuals(scores, targets)
            if self._limit is not None:
                lengths = norms * torch.linalg.vector_norm(residuals, dim=1, keepdim=True)
                residuals *= (self._limit / lengths).clamp_(max=1.0)  # length 0: limit / 0 is inf, and the factor 1
            total += residuals.T @ features
        return total.T

    def _parts(self, batch: Batch) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Features in float64, targets and the features' norms of a batch: at once where they are stored so, else some at a time."""
        features, targets, norms = self._features[batch], self._targets[batch], self._norms[batch]
        size = len(features) if features.dtype == torch.float64 else max(1, _AT_ONCE // features.shape[1])
        for first in range(0, len(features), max(1, size)):
            part = slice(first, first + size)
            yield features[part].double(), targets[part], norms[part]


def _product(features: Tensor, parameters: Tensor) -> Tensor:
    """Scores, added up block by block, so that rounding is that of a few hundred products, however many features there are."""
    if features.shape[1] <= _BLOCK:
        return features @ parameters
    blocks = zip(features.split(_BLOCK, dim=1), parameters.split(_BLOCK), strict=True)
    scores = features.new_zeros(len(features), parameters.shape[1])
    for some, weights in blocks:
        scores.addmm_(some, weights)
    return scores
