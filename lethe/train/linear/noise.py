"""Gaussian noise for the parameters of a linear model: drawn anew at each step, or correlated over the steps."""

from __future__ import annotations

import torch

from lethe.run.noise.draws import Draws
from lethe.run.run import Run
from lethe.train.core.noise_resolution import refuse_unstable


class GaussianNoise:
    r"""Draws $N(0, \tau^2 I)$ in parameter units; of correlated noise $\tau_t u_t$ with $u = C^{-1}z$, $z_t \sim N(0, I)$.

    $\tau_t = \lambda_t z C_\mathrm{clip}/b$ changes with the step size alone, so that the noise on the sums of gradients is $C^{-1}z$
    whatever the step sizes are. What is kept between steps is what the strategy's stream keeps.

    Drawn in float64: PyTorch's float32 normals never exceed 5.77 standard deviations, so that a large enough output would have one
    possible cause. The generator decides how secret the noise is: PyTorch's are statistical generators, not cryptographic ones, and their
    samples are floating-point numbers, not exact Gaussians. Both are outside of what a certificate says.

    Args:
        shape: of the parameters.
        generator: used for noise only, never for batches.
        run: whose noise may be correlated; None: it is independent.
    Raises:
        LetheError: correlated noise would outgrow its draws.
    """

    def __init__(self, shape: torch.Size, generator: torch.Generator, run: Run | None = None) -> None:
        self._shape, self._generator = shape, generator
        self._draws = None if run is None or run.noise is None else Draws(run.noise)
        if run is not None:
            refuse_unstable(run, torch.float64)

    def draw(self, noise_std: float) -> torch.Tensor | float:
        """The noise of the next step, with $\\tau$ = `noise_std` >= 0; 0.0, and nothing drawn, when it is 0."""
        if noise_std == 0.0:
            if self._draws is not None:
                self._draws.none()
            return 0.0
        drawn = torch.randn(self._shape, generator=self._generator, dtype=torch.float64, device=self._generator.device)
        return noise_std * (drawn if self._draws is None else self._draws.next(drawn))

    def executed(self, recorded: Run) -> Run:
        """What was recorded of each step as a run with this noise; HypothesisError as `Draws.executed`."""
        return recorded if self._draws is None else self._draws.executed(recorded)
