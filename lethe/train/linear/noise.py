"""Gaussian noise for the parameters: drawn anew at each step, or correlated over the steps."""

from __future__ import annotations

import torch

from lethe.run.noise.draws import Draws
from lethe.run.run import Run


class GaussianNoise:
    r"""Draws $N(0, \tau^2 I)$ in parameter units.

    Drawn in float64: PyTorch's float32 normals never exceed 5.77 standard deviations, so that a large enough output would have one
    possible cause.

    The generator decides how secret the noise is: PyTorch's are statistical generators, not cryptographic ones, and their samples are
    floating-point numbers, not exact Gaussians. Both are outside of what a certificate says.

    Args:
        shape: of the parameters.
        generator: used for noise only, never for batches.
    """

    __slots__ = ("_generator", "_shape")

    def __init__(self, shape: torch.Size, generator: torch.Generator) -> None:
        self._shape = shape
        self._generator = generator

    def draw(self, noise_std: float) -> torch.Tensor | float:
        """A fresh sample with standard deviation `noise_std` >= 0 in every coordinate; 0.0, and nothing drawn, when it is 0."""
        if noise_std == 0.0:
            return 0.0
        drawn = torch.randn(self._shape, generator=self._generator, dtype=torch.float64, device=self._generator.device)
        return noise_std * drawn

    def executed(self, recorded: Run) -> Run:
        """The run with this noise in it, from what was recorded of each step: as it is, since that is drawn anew at each step."""
        return recorded


class CorrelatedGaussianNoise(GaussianNoise):
    r"""Draws $\tau_t u_t$ with $u = C^{-1}z$, $z_t \sim N(0, I)$: noise that depends on the noise of earlier steps.

    $\tau_t = \lambda_t z C_\mathrm{clip}/b$ changes with the step size alone, so that the noise on the sums of gradients is $C^{-1}z$
    whatever the step sizes are. What is kept between steps, in float64, is what the strategy's stream keeps.

    Args:
        run: with correlated noise.
        shape: of the parameters.
        generator: used for noise only, never for batches.
    """

    __slots__ = ("_draws",)

    def __init__(self, run: Run, shape: torch.Size, generator: torch.Generator) -> None:
        assert run.noise is not None
        super().__init__(shape, generator)
        self._draws = Draws(run.noise)

    def draw(self, noise_std: float) -> torch.Tensor | float:
        """The correlated noise of the next step; 0.0, and nothing drawn, when `noise_std` is 0."""
        if noise_std == 0.0:
            self._draws.none()
            return 0.0
        return noise_std * self._draws.next(super().draw(1.0))

    def executed(self, recorded: Run) -> Run:
        """`recorded` with the strategy that made the noise.

        Raises:
            HypothesisError: as `Draws.executed`.
        """
        return self._draws.executed(recorded)


def step_noise(run: Run, shape: torch.Size, generator: torch.Generator) -> GaussianNoise:
    """The noise of a run, for one training.

    Args:
        run: independent or correlated.
        shape: of the parameters.
        generator: used for noise only.
    """
    return GaussianNoise(shape, generator) if run.noise is None else CorrelatedGaussianNoise(run, shape, generator)
