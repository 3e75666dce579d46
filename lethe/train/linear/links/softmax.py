"""Softmax regression on tensors."""

from __future__ import annotations

import torch

from lethe.train.linear.links.base import Link, ScoreCurvature


class SoftmaxLink(Link):
    r"""$f = -\log\mathrm{softmax}(s)_y$, $r = \mathrm{softmax}(s) - e_y$, $\|r\| \le \sqrt2$."""

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """softmax(s) - e_y."""
        return torch.softmax(scores, dim=1).scatter_add_(1, targets, scores.new_full(targets.shape, -1.0))

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy."""
        return -torch.log_softmax(scores, dim=1).gather(1, targets).squeeze(1)

    def curvature(self, scores: torch.Tensor, targets: torch.Tensor) -> ScoreCurvature:
        """See `SoftmaxCurvature`."""
        return SoftmaxCurvature(scores)


class SoftmaxCurvature(ScoreCurvature):
    r"""$S = \mathrm{diag}(p) - pp^\top$, the covariance of a random class c, and $T = \mathbb{E}[a_c (e_c - p)(e_c - p)^\top]$.

    Here $p = \mathrm{softmax}$ of the scores and $a = s - p\cdot s$ for the direction $s$.
    """

    def __init__(self, scores: torch.Tensor) -> None:
        self._chances = torch.softmax(scores, dim=-1)

    def product(self, directions: torch.Tensor) -> torch.Tensor:
        """p (s - p.s)."""
        return self._chances * self._centred(directions)

    def root(self, noise: torch.Tensor) -> torch.Tensor:
        """As a weighted covariance with weights p."""
        return self._weighted(self._chances, noise)

    def bend_roots(self, direction: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split by the sign of a_c."""
        weights = self.product(direction)
        return self._weighted(weights.clamp(min=0), noise[0]), self._weighted((-weights).clamp(min=0), noise[1])

    def _centred(self, directions: torch.Tensor) -> torch.Tensor:
        return directions - (self._chances * directions).sum(dim=-1, keepdim=True)

    def _weighted(self, weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        # sum_c sqrt(w_c) z_c (e_c - p)
        scaled = weights.sqrt() * noise
        return scaled - self._chances * scaled.sum(dim=-1, keepdim=True)
