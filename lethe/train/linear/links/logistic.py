"""Logistic regression on tensors."""

from __future__ import annotations

import torch

from lethe.train.linear.links.base import Link, ScoreCurvature


class LogisticLink(Link):
    r"""$f = \log(1 + e^{-ys})$ with $y = 2t - 1$ for the target $t \in \{0, 1\}$: $r = \mathrm{sigmoid}(s) - t$, $|r| \le 1$."""

    def residuals(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """sigmoid(s) - t, which is -y sigmoid(-ys)."""
        return torch.sigmoid(scores) - targets

    def losses(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """log(1 + exp(-ys))."""
        return torch.logaddexp(torch.zeros_like(scores), (1 - 2 * targets) * scores).squeeze(1)

    def curvature(self, scores: torch.Tensor, targets: torch.Tensor) -> ScoreCurvature:
        """See `LogisticCurvature`."""
        return LogisticCurvature(scores)


class LogisticCurvature(ScoreCurvature):
    r"""$S = p(1-p)$, $T = p(1-p)(1-2p)\,s$ with $p = \mathrm{sigmoid}$ of the score."""

    def __init__(self, scores: torch.Tensor) -> None:
        chances = torch.sigmoid(scores)
        self._second = chances * (1 - chances)
        self._third = self._second * (1 - 2 * chances)

    def product(self, directions: torch.Tensor) -> torch.Tensor:
        """S s."""
        return self._second * directions

    def root(self, noise: torch.Tensor) -> torch.Tensor:
        """sqrt(S) z."""
        return self._second.sqrt() * noise

    def bend_roots(self, direction: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split by sign."""
        bend = self._third * direction
        return bend.clamp(min=0).sqrt() * noise[0], (-bend).clamp(min=0).sqrt() * noise[1]
