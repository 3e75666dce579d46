r"""Losses of linear models on tensors, and the sum of their clipped gradients in closed form: two matrix products and no autograd.

`train_linear` asks `LinearModel.clipped_gradient_sum` for each batch. $l'$ is the derivative of the loss in the scores.

A record's gradient is the outer product of its features $u$ with its residual $r = l'$, of norm $\|u\|\,\|r\|$. All arithmetic is in
float64, whatever the rows are stored in: what rounding adds to a gradient is then known (`gradient_rounding`).
"""

import math

import numpy as np
import torch
from torch import Tensor

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.effective_loss import descended_curvature
from lethe.run.fields import SHORTENING, ClipMethod
from lethe.run.losses import LeastSquares, Logistic, Softmax, Tweedie
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run
from lethe.train.core.iterates import inward, most_records
from lethe.train.core.samplers import Batch

_MOST_ROWS = 2.0**24
_BLOCK = 256  # products of a score that are added at once
_AT_ONCE = 2**20  # numbers that are held as float64 at once beside rows of another type: 8 MiB


def residuals_of(loss: LinearLoss, scores: Tensor, targets: Tensor, bounds: Tensor | None = None) -> Tensor:
    """The derivative of each record's loss in its scores, shape (n, k): the loss's own NumPy code, or tensor operations on the device.

    Scores and targets have shapes (n, k), float64, and (n, 1). With `bounds` c > 0, shape (n, 1), it is the derivative of the loss's
    Lipschitz envelope.
    """
    if bounds is not None:
        reach = bounds.detach().cpu().squeeze(1).numpy()
        return torch.from_numpy(loss.envelope_slopes(*_arrays(scores, targets), reach)).to(scores.device)
    match loss:
        case LeastSquares():
            return (scores - targets).clamp_(-loss.residual_bound, loss.residual_bound)
        case Logistic():
            return torch.sigmoid(scores) - targets
        case Softmax():
            return torch.softmax(scores, dim=1).scatter_add_(1, targets, scores.new_full(targets.shape, -1.0))
        case _:
            return torch.from_numpy(loss.slopes(*_arrays(scores, targets))).to(scores.device)


def losses_of(loss: LinearLoss, scores: Tensor, targets: Tensor) -> Tensor:
    """Each record's loss, shape (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):  # of a training that overflowed, which is refused by its own words
        return torch.from_numpy(loss.values(*_arrays(scores, targets))).to(scores.device)


def _arrays(scores: Tensor, targets: Tensor) -> tuple[FloatArray, FloatArray]:
    """Scores and targets as NumPy arrays, targets of shape (n,), for the loss's own code."""
    return scores.detach().cpu().numpy(), targets.detach().to(device="cpu", dtype=torch.float64).squeeze(1).numpy()


def gradient_rounding(run: Run, loss: LinearLoss, rows: int, parameter_norm: float, *, in_blocks: bool) -> float:
    r"""A bound on how far the computed mean gradient is from the exact one, in loss per parameter unit.

    $$u\frac Kb\,\Big(M(p+8)N + R(k+16) + (D+2k+32)C + 2CK\Big),\qquad u = 2^{-53}$$

    A score, p products added one to another, is off by $\gamma_p\|u_i\|\|x\|$, and moves the gradient by at most $M/R$ times that; then
    come the roundings of the residual, its norm, its factor and its product, and those of a sum over K records (Higham 2002, section 3.1).
    A residual of counts and costs is the difference of two exponentials of at most $2M/R^2$, of $(2-p)s$ and $\log y + (1-p)s$, and adds
    $6MN + (160 + 10|\log Y|)M/R$.
    K is `most_records`. K users may have $2^{24}$ rows together, which then stands for the K of the last term. D is `rows`, N
    `parameter_norm`; `in_blocks`: scores are added up as `LinearModel` does, $p = 256 + \lceil D/256\rceil$; else p = D.
    """
    batch_limit, bound = most_records(run), run.record_bound
    summands = batch_limit if run.unit == "record" else _MOST_ROWS
    _, smoothness = descended_curvature(run) or (0.0, 0.0)
    added = min(rows, _BLOCK + math.ceil(rows / _BLOCK)) if in_blocks else rows
    of_scores = smoothness * (added + 8) * parameter_norm + loss.row_norm * (loss.outputs + 16)
    of_sums = (rows + 2 * loss.outputs + 32 + 2.0 * summands) * bound
    if isinstance(loss, Tweedie):
        of_scores += smoothness * (6.0 * parameter_norm + (160.0 + 10.0 * abs(math.log(loss.target_bound))) / loss.row_norm)
    return 2.0**-53 * (batch_limit / run.batch_size) * (of_scores + of_sums) * (1.0 + 2.0**-40)


def refuse_other_clipping(run: Run) -> None:
    """Raise InputError for other clipping than `LinearModel` does: all parameters together, by projection or of the loss's envelope."""
    if run.sparse_selection is not None:
        raise InputError("sparse_selection: a linear model looks up no rows of a table.", remedy="drop sparse_selection.")
    is_other_method = run.clip_method not in ("clip", "envelope")
    if is_other_method or run.clip_groups is not None:
        name, got = ("clip_method", run.clip_method) if is_other_method else ("clip_groups", run.clip_groups)
        raise InputError(
            f"{name}: got {got}; linear models are clipped by projection or envelope, all their parameters together.",
            source=f"run.{name}",
            remedy=f"drop {name}, or train the model by lethe.train.fit.",
        )


class LinearModel:
    r"""A linear model on its training data.

    $$\sum_{i\in B}\mathrm{Clip}_C(u_i r_i^\top) = U_B^\top \mathrm{diag}(c) R_B,\qquad c_i = \min\Big(1, \frac{C}{\|u_i\|\,\|r_i\|}\Big)$$

    The residuals $r_i$ are of shape (k,), the features $u_i$ the rows of an (n, d) table, of any floating-point type, the targets of shape
    (n, 1). With the method "envelope" $r_i$ is the slope of the loss's Lipschitz envelope of bound $C/\|u_i\|$ in the scores, and $c_i = 1$
    but for rounding.

    Edge cases: a record without gradient ($u_i = 0$ or $r_i = 0$) adds nothing; an empty batch gives zeros; clip_norm None does not clip.
    """

    def __init__(
        self, loss: LinearLoss, features: Tensor, targets: Tensor, *, clip_norm: float | None, method: ClipMethod = "clip"
    ) -> None:
        assert method in SHORTENING  # `refuse_other_clipping` has refused the rest
        self._loss, self._features, self._targets = loss, features, targets
        self._norms = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=torch.float64)
        self._limit = None if clip_norm is None else inward(clip_norm, features.shape[1] + loss.outputs, torch.float64)
        self._envelope = method == "envelope"

    def clipped_gradient_sum(self, parameters: Tensor, batch: Batch) -> Tensor:
        """The sum over the batch, shape (d, k), in loss per parameter unit; every record's share has norm at most clip_norm."""
        total = parameters.new_zeros(parameters.shape[::-1])  # by outputs: BLAS reads a tall table along its rows several times as fast
        batch = batch if isinstance(batch, slice) else batch.to(self._norms.device)
        rows, targets, norms = self._features[batch], self._targets[batch], self._norms[batch]
        size = len(rows) if rows.dtype == torch.float64 else max(1, _AT_ONCE // rows.shape[1])
        for first in range(0, len(rows), max(1, size)):
            part = slice(first, first + size)
            features = rows[part].double()
            bounds = self._limit / norms[part] if self._envelope and self._limit is not None else None
            residuals = residuals_of(self._loss, _product(features, parameters), targets[part], bounds)
            if self._limit is not None:
                lengths = norms[part] * torch.linalg.vector_norm(residuals, dim=1, keepdim=True)
                residuals *= (self._limit / lengths).clamp_(max=1.0)  # length 0: limit / 0 is inf, and the factor 1
            total += residuals.T @ features
        return total.T


def _product(features: Tensor, parameters: Tensor) -> Tensor:
    """Scores, added up block by block, so that rounding is that of a few hundred products, however many features there are."""
    if features.shape[1] <= _BLOCK:
        return features @ parameters
    scores = features.new_zeros(len(features), parameters.shape[1])
    for feature_columns, weights in zip(features.split(_BLOCK, dim=1), parameters.split(_BLOCK), strict=True):
        scores.addmm_(feature_columns, weights)
    return scores
