r"""Scattering2d: averages of images, and of moduli of their wavelet coefficients, twice over, as a PyTorch module.

With the wavelets of `morlet` and the low pass $\phi$ of width $0.8\cdot2^{J-1}$ pixels, circular convolution $\star$ on the padded image:

$$S_0 = x\star\phi,\quad S_1[j,\theta] = |x\star\psi_{j\theta}|\star\phi,\quad
S_2[j_1,\theta_1,j_2,\theta_2] = ||x\star\psi_{j_1\theta_1}|\star\psi_{j_2\theta_2}|\star\phi,\quad j_1 < j_2 < J,$$

each read at every $2^J$-th row and column. Moduli are kept at every $2^j$-th, where they are smooth: the Fourier transform of what is left
is the mean of the transform's parts that become one frequency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.estimators.features.morlet import bank, low_pass

_MOST_SCALES, _FEWEST_ANGLES, _MOST_ANGLES = 6, 4, 32


@dataclass(frozen=True, slots=True)
class ScatteringPath:
    """Which wavelets a channel went through: (scale, angle) once an order, none for the average alone.

    Args:
        steps: each scale j, and each angle as the l of $\\pi l / L$.
    """

    steps: tuple[tuple[int, int], ...]

    @property
    def order(self) -> int:
        """0, 1 or 2."""
        return len(self.steps)


class Scattering2d(nn.Module):
    r"""The scattering transform of order 2 of images of one size, each by itself.

    Channels come in the order of `paths`: $S_0$; $S_1$ by (j, l); $S_2$ by $(j_1, l_1, j_2, l_2)$, the last number fastest. With J = 2 and
    L = 8 they are 81: 1 + 16 + 64. Images are padded by reflection at their edges.

    Args:
        shape: rows and columns of the images, each above $2^J$.
        scales: J, from 1 to 6; what is averaged over has about $2^J$ pixels a side.
        angles: L, from 4 to 32.
        dtype: of images and channels, torch.float32 or torch.float64.
    Attributes: `paths` (one a channel), `channels` (their number K), `output_shape` (rows and columns of the result, divided by $2^J$ and
        rounded down).
    Raises:
        InputError: an argument is out of its range, or the images are too small.
    Reference: Mallat 2012, Group invariant scattering, arXiv:1101.2286v3; Bruna, Mallat 2013, arXiv:1203.1513v2.
    """

    def __init__(self, shape: tuple[int, int], *, scales: int = 2, angles: int = 8, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self._dtype = dtype
        self.scales = require_count("scales", scales, low=1, high=_MOST_SCALES)
        self.angles = require_count("angles", angles, low=_FEWEST_ANGLES, high=_MOST_ANGLES)
        unit = 2**self.scales
        if min(shape) <= unit:
            raise InputError(
                f"images of {shape[0]} x {shape[1]} pixels are too small for scales = {self.scales}; both sides need more than {unit}.",
                source="the parameter scales, and the images",
                remedy="take fewer scales, or larger images",
            )
        self.shape = (int(shape[0]), int(shape[1]))
        self.output_shape = (self.shape[0] // unit, self.shape[1] // unit)
        self.paths = _paths(self.scales, self.angles)
        self.channels = len(self.paths)
        # At least 2^J pixels at every edge, and a multiple of 2^J in all: the first sample of the image is its first pixel.
        padded = [-(-side // unit) * unit + 2 * unit for side in self.shape]
        for axis in range(2):
            self.register_buffer(f"_pixels{axis}", _reflected(self.shape[axis], unit, padded[axis]), persistent=False)
        for level in range(self.scales):
            grid = padded[0] // 2**level, padded[1] // 2**level
            step = unit // 2**level
            for axis in range(2):
                self._keep(f"average{level}{axis}", _averages(grid[axis], self.scales - level, self.output_shape[axis], step))
            for scale in range(level, self.scales):
                if level == 0 or scale > level:
                    # Over the parts that become one frequency a mean is taken.
                    self._keep(f"wavelets{level}{scale}", bank(grid, scale - level, self.angles, self.scales) / 4.0 ** (scale - level))

    def forward(self, images: Tensor) -> Tensor:
        """The channels of every image and of every channel it has.

        Args:
            images: shape (..., H, W), of type dtype.
        Returns:
            Shape (..., K, H / 2^J, W / 2^J), rounded down.
        Raises:
            InputError: images of another size.
        """
        if tuple(images.shape[-2:]) != self.shape:
            raise InputError(f"images: got shape {tuple(images.shape)}; it needs (..., {self.shape[0]}, {self.shape[1]}).")
        leading = images.shape[:-2]
        flat = images.reshape(-1, 1, *self.shape)
        padded = flat.index_select(2, self._kept("pixels0")).index_select(3, self._kept("pixels1"))
        transformed = torch.fft.fft2(padded)
        found = [self._average(padded, 0)]
        second: list[Tensor] = []
        for first in range(self.scales):
            moduli = _moduli(transformed[:, 0], self._kept(f"wavelets0{first}"), 2**first)
            found.append(self._average(moduli, first))
            if first + 1 < self.scales:
                second.append(self._second(moduli, first))
        return torch.cat([*found, *second], dim=1).reshape(*leading, self.channels, *self.output_shape)

    def _second(self, moduli: Tensor, first: int) -> Tensor:
        """All channels of order 2 behind the wavelets of one scale, shape (n, channels, rows, columns)."""
        transformed = torch.fft.fft2(moduli)
        parts = []
        for scale in range(first + 1, self.scales):
            deeper = _moduli(transformed, self._kept(f"wavelets{first}{scale}"), 2 ** (scale - first))
            averaged = self._average(deeper, scale)
            parts.append(averaged.reshape(len(moduli), self.angles, self.angles, *self.output_shape))
        return torch.stack(parts, dim=2).flatten(1, 3)

    def _average(self, maps: Tensor, level: int) -> Tensor:
        """Low pass and samples at once, a matrix on each side, for maps on the grid of a level."""
        return self._kept(f"average{level}0") @ maps @ self._kept(f"average{level}1").mT

    def _keep(self, name: str, values: np.ndarray) -> None:
        self.register_buffer(f"_{name}", torch.tensor(values, dtype=self._dtype), persistent=False)

    def _kept(self, name: str) -> Tensor:
        return self.get_buffer(f"_{name}")


def _paths(scales: int, angles: int) -> tuple[ScatteringPath, ...]:
    one = [(scale, angle) for scale in range(scales) for angle in range(angles)]
    two = [(first, second) for first in one for second in one if second[0] > first[0]]
    return (ScatteringPath(()), *(ScatteringPath((step,)) for step in one), *(ScatteringPath(pair) for pair in two))


def _averages(points: int, scale: int, samples: int, step: int) -> np.ndarray:
    """Circular convolution with the low pass along one axis, read at every `step`-th point from the image's first pixel on."""
    kernel = np.fft.ifft(low_pass(points, scale)).real
    places = step * (1 + np.arange(samples))
    return kernel[(places[:, None] - np.arange(points)) % points]


def _reflected(side: int, before: int, padded: int) -> Tensor:
    """Which pixel stands where on the padded axis: there and back again, as often as there is room."""
    period = 2 * side - 2
    places = (torch.arange(padded) - before) % period
    return torch.where(places < side, places, period - places)


def _moduli(transformed: Tensor, wavelets: Tensor, step: int) -> Tensor:
    r"""$|x\star\psi|$ at every `step`-th row and column.

    Args:
        transformed: of x, shape (..., rows, columns), complex.
        wavelets: their transforms, shape (L, rows, columns), real.
    Returns:
        Shape (..., L, rows / step, columns / step), the leading axes but the first in one with L.
    """
    rows, columns = transformed.shape[-2] // step, transformed.shape[-1] // step
    parts = torch.view_as_real(transformed).unsqueeze(-4)
    kernels = wavelets.unsqueeze(-1)
    total: Tensor | None = None
    for down in range(step):
        for across in range(step):
            window = (..., slice(down * rows, (down + 1) * rows), slice(across * columns, (across + 1) * columns), slice(None))
            total = parts[window] * kernels[window] if total is None else total.addcmul_(parts[window], kernels[window])
    assert total is not None
    moduli = torch.fft.ifft2(torch.view_as_complex(total)).abs()
    return moduli.flatten(1, -3)
