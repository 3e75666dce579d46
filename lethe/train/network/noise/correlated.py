"""Correlated noise for the sums of a network's gradients."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lethe.run.noise.draws import Draws
from lethe.run.run import Run
from lethe.train.core.noise_resolution import fresh_share, refuse_drowned, refuse_unstable
from lethe.train.core.tensors import checked_tensors
from lethe.train.network.noise.gaussian import NetworkNoise


class CorrelatedNetworkNoise:
    r"""Adds $\tau u_t$ to the sums of step t, $u = C^{-1}z$ with $z_t \sim N(0, I)$; asked once a step, for all tensors together.

    It keeps what the strategy's stream keeps, in float64: p - 1 numbers a parameter of a banded strategy, one a buffer of a buffered one.

    Args:
        run: with correlated noise.
        noise: makes $z_t$. Like it, this cannot be copied.
        dtype: the coarsest of the parameters.
    Raises:
        LetheError: the noise would outgrow its draws.
    """

    __slots__ = ("_draws", "_noise", "_share")

    def __init__(self, run: Run, noise: NetworkNoise, dtype: torch.dtype) -> None:
        assert run.noise is not None
        refuse_unstable(run, dtype)
        self._draws, self._noise, self._share = Draws(run.noise), noise, fresh_share(run)

    @torch.no_grad()
    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        """Add the noise of the next step.

        Args:
            tensors: the sums of all trained parameters, always in the same order.
            noise_std: of what is drawn anew, >= 0, in the tensors' own units; 0 draws nothing.
        Raises:
            InputError: as `NetworkNoise.add_to`.
            LetheError: what is drawn anew drowns in the rounding of the sums.
        """
        checked = checked_tensors(tensors, device=self._noise.device)
        if noise_std == 0.0:
            self._draws.none()
            return
        fresh = torch.zeros(sum(tensor.numel() for tensor in checked), dtype=torch.float64, device=self._noise.device)
        self._noise.add_to([fresh], 1.0)
        parts = self._draws.next(fresh).split([tensor.numel() for tensor in checked])
        for tensor, part in zip(checked, parts, strict=True):
            tensor.detach().copy_(tensor.detach().double().add_(part.view_as(tensor), alpha=noise_std))  # rounded once
            if tensor.numel():
                refuse_drowned(noise_std * self._share, tensor.detach())

    def executed(self, recorded: Run) -> Run:
        """`recorded`, of independent noise, with the strategy that made the noise.

        Raises:
            HypothesisError: as `Draws.executed`.
        """
        return self._draws.executed(recorded)
