"""The sum of per-record clipped gradients of a linear model, in closed form: two matrix products and no autograd."""

from __future__ import annotations

from typing import Protocol

import torch

from lethe.errors import InputError
from lethe.run.clip_fields import SHORTENING, ClipMethod
from lethe.run.run import Run
from lethe.train.core.projection import inward
from lethe.train.core.samplers import Batch
from lethe.train.linear.links import Link


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

    def clipped_gradient_sum(self, parameters: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Over a batch, shape (d, k)."""
        ...

    def clipped_losses_along(
        self, parameters: torch.Tensor, direction: torch.Tensor, lengths: torch.Tensor, loss_clip: float
    ) -> torch.Tensor:
        """Over all records, shape (K,).

        Args: as `LinearModel.clipped_losses_along`.
        """
        ...


class LinearModel:
    r"""A linear model on its training data.

    $$\sum_{i\in B}\mathrm{Clip}_C(u_i r_i^\top) = U_B^\top \mathrm{diag}(c) R_B,\qquad c_i = \min\Big(1, \frac{C}{\|u_i\|\,\|r_i\|}\Big)$$

    With the method "envelope" $r_i$ is the slope of the loss's Lipschitz envelope of bound $C/\|u_i\|$ in the scores, and $c_i = 1$ but for
    rounding.

    Edge cases: a record without gradient ($u_i = 0$ or $r_i = 0$) adds nothing; an empty batch gives zeros; clip_norm None does not clip.

    Args:
        link: gives the residuals $r_i$, shape (k,), from the scores.
        features: $u_i$ as rows, shape (n, d).
        targets: shape (n, 1).
        clip_norm: C > 0 on one record's gradient, all parameters together; None: no clipping.
        outputs: k, the columns of the parameters.
        method: "clip" or "envelope".
    """

    __slots__ = ("_features", "_limit", "_link", "_method", "_norms", "_targets", "clip_norm")

    def __init__(
        self,
        link: Link,
        features: torch.Tensor,
        targets: torch.Tensor,
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
        self._norms = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        self.clip_norm = clip_norm
        self._limit = None if clip_norm is None else inward(clip_norm, features.shape[1] + outputs, features.dtype)

    def clipped_gradient_sum(self, parameters: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The sum over the batch, shape (d, k), in loss per parameter unit; every record's share has norm at most clip_norm."""
        features = self._features[batch]
        scores, targets = features @ parameters, self._targets[batch]
        if self._method == "envelope" and self._limit is not None:
            residuals = self._link.envelope_residuals(scores, targets, self._limit / self._norms[batch])
        else:
            residuals = self._link.residuals(scores, targets)
        if self._limit is not None:
            norms = self._norms[batch] * torch.linalg.vector_norm(residuals, dim=1, keepdim=True)
            residuals *= (self._limit / norms).clamp_(max=1.0)  # norm 0: limit / 0 is inf, and the factor 1
        return (residuals.T @ features).T  # not features.T @ residuals: BLAS reads a tall table along its rows several times as fast

    def clipped_losses_along(
        self, parameters: torch.Tensor, direction: torch.Tensor, lengths: torch.Tensor, loss_clip: float
    ) -> torch.Tensor:
        r"""$\sum_i \min(f_i(x - a d), C)$ over all records, for each length a: shape (K,); every record's share lies in [0, C].

        Args:
            parameters: x, shape (d, k).
            direction: d, of the same shape.
            lengths: the a, shape (K,).
            loss_clip: C > 0.
        """
        scores, slopes = self._features @ parameters, self._features @ direction
        sums = [self._link.losses(scores - length * slopes, self._targets).clamp_(0.0, loss_clip).sum() for length in lengths]
        return torch.stack(sums)
