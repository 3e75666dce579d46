"""Gaussian noise for the parameters."""

from __future__ import annotations

import torch


class GaussianNoise:
    r"""Draws $N(0, \tau^2 I)$ in parameter units.

    Drawn in float64 whatever the dtype, and rounded once: PyTorch's float32 normals never exceed 5.77 standard deviations, so that a
    large enough output would have one possible cause.

    The generator decides how secret the noise is: PyTorch's are statistical generators, not cryptographic ones, and their samples are
    floating-point numbers, not exact Gaussians. Both are outside of what a certificate says.

    Args:
        shape: of the parameters.
        generator: used for noise only, never for batches.
        dtype: of the result.
    """

    __slots__ = ("_dtype", "_generator", "_shape")

    def __init__(self, shape: torch.Size, generator: torch.Generator, dtype: torch.dtype) -> None:
        self._shape = shape
        self._generator = generator
        self._dtype = dtype

    def draw(self, noise_std: float) -> torch.Tensor | float:
        """A fresh sample with standard deviation `noise_std` >= 0 in every coordinate; 0.0, and nothing drawn, when it is 0."""
        if noise_std == 0.0:
            return 0.0
        drawn = torch.randn(self._shape, generator=self._generator, dtype=torch.float64, device=self._generator.device)
        return (noise_std * drawn).to(self._dtype)
