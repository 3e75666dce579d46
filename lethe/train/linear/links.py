r"""What tells the three linear models apart: from scores and targets to residuals, losses and decisions.

Each record's gradient is the outer product of its features $u$ with its residual $r$, so its norm is $\|u\|\,\|r\|$.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import torch

from lethe.errors import InputError
from lethe.run.losses import LeastSquares, Logistic, Loss, Softmax


class Link(ABC):
    r"""Scores are $s = X^\top u$, shape (n, k); targets have shape (n, 1)."""

    @abstractmethod
    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The derivative of each record's loss in its scores, shape (n, k)."""

    @abstractmethod
    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Each record's loss, shape (n,)."""

    @abstractmethod
    def decide(self, scores: torch.Tensor) -> torch.Tensor:
        """The predicted class, or value, shape (n,)."""


class SoftmaxLink(Link):
    r"""$f = -\log\mathrm{softmax}(s)_y$, $r = \mathrm{softmax}(s) - e_y$, $\|r\| \le \sqrt2$."""

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """softmax(s) - e_y."""
        return torch.softmax(scores, dim=1).scatter_add_(1, targets, scores.new_full(targets.shape, -1.0))

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy."""
        return -torch.log_softmax(scores, dim=1).gather(1, targets).squeeze(1)

    def decide(self, scores: torch.Tensor) -> torch.Tensor:
        """The class with the largest score."""
        return scores.argmax(dim=1)


class LogisticLink(Link):
    r"""$f = \log(1 + e^{-ys})$ with $y = 2t - 1$ for the target $t \in \{0, 1\}$: $r = \mathrm{sigmoid}(s) - t$, $|r| \le 1$."""

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """sigmoid(s) - t, which is -y sigmoid(-ys)."""
        return torch.sigmoid(scores) - targets

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """log(1 + exp(-ys))."""
        return torch.logaddexp(torch.zeros_like(scores), (1 - 2 * targets) * scores).squeeze(1)

    def decide(self, scores: torch.Tensor) -> torch.Tensor:
        """1 where the score is positive."""
        return (scores > 0).to(torch.int64).squeeze(1)


class LeastSquaresLink(Link):
    r"""Huber's loss: $r = \max(-B, \min(B, s - y))$; $f = r^2/2$ inside, linear outside.

    B is rounded down to a number of the scores' type: with a constant feature nothing else makes up for a bound that was rounded up.

    Args:
        residual_bound: B > 0, in target units.
    """

    def __init__(self, residual_bound: float) -> None:
        self.residual_bound = residual_bound

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """s - y, truncated at +-B."""
        bound = _at_most(self.residual_bound, scores.dtype)
        return (scores - targets).clamp_(-bound, bound)

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """r (s - y - r/2): the square inside, the tangent outside."""
        truncated = self.residuals(scores, targets)
        return (truncated * (scores - targets - truncated / 2)).squeeze(1)

    def decide(self, scores: torch.Tensor) -> torch.Tensor:
        """The score itself."""
        return scores.squeeze(1)


@cache
def _at_most(bound: float, dtype: torch.dtype) -> float:
    """The largest number of the type that is no more than `bound`."""
    rounded = torch.tensor(bound, dtype=dtype)
    return (rounded if rounded.item() <= bound else torch.nextafter(rounded, torch.zeros_like(rounded))).item()


LinearLoss = Softmax | Logistic | LeastSquares


def link_of(loss: LinearLoss) -> Link:
    """The link of a loss."""
    if isinstance(loss, LeastSquares):
        return LeastSquaresLink(loss.residual_bound)
    return SoftmaxLink() if isinstance(loss, Softmax) else LogisticLink()


def linear_loss(loss: Loss) -> LinearLoss:
    """`loss`, if it is one whose facts the pipeline can enforce.

    Raises:
        InputError: another kind of loss.
    """
    if isinstance(loss, Softmax | Logistic | LeastSquares):
        return loss
    raise InputError(
        f"loss.kind: got {loss.kind}; fit_linear trains softmax_regression, logistic_regression and least_squares.",
        source="loss",
        remedy="choose one of the three with a feature_norm, or train the model itself with lethe.train.fit.",
    )
