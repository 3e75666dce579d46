"""Least squares with truncated residuals on tensors."""

from __future__ import annotations

from functools import cache

import torch

from lethe.run.losses import LeastSquares
from lethe.train.linear.links.base import Link


class LeastSquaresLink(Link):
    r"""Huber's loss: $r = \max(-B, \min(B, s - y))$; $f = r^2/2$ inside, linear outside.

    B is rounded down to a number of the scores' type: with a constant feature nothing else makes up for a bound that was rounded up.

    Args:
        loss: with B > 0, in target units.
    """

    def __init__(self, loss: LeastSquares) -> None:
        super().__init__(loss)
        self.residual_bound = loss.residual_bound

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """s - y, truncated at +-B."""
        bound = _at_most(self.residual_bound, scores.dtype)
        return (scores - targets).clamp_(-bound, bound)

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """r (s - y - r/2): the square inside, the tangent outside."""
        truncated = self.residuals(scores, targets)
        return (truncated * (scores - targets - truncated / 2)).squeeze(1)


@cache
def _at_most(bound: float, dtype: torch.dtype) -> float:
    """The largest number of the type that is no more than `bound`."""
    rounded = torch.tensor(bound, dtype=dtype)
    return (rounded if rounded.item() <= bound else torch.nextafter(rounded, torch.zeros_like(rounded))).item()
