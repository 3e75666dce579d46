r"""Modules of image features: scattering, and responses to random filters.

images.py wraps both as transformers of scikit-learn: they are fixed by a seed or a formula, so applying them costs no privacy.

Scattering: averages, and averages of moduli of wavelet coefficients, twice over, with nothing learned.

With Morlet wavelets and the low pass $\phi$ of width $0.8\cdot2^{J-1}$ pixels, circular convolution $\star$ on the padded image:

$$S_0 = x\star\phi,\quad S_1[j,\theta] = |x\star\psi_{j\theta}|\star\phi,\quad
S_2[j_1,\theta_1,j_2,\theta_2] = ||x\star\psi_{j_1\theta_1}|\star\psi_{j_2\theta_2}|\star\phi,\quad j_1 < j_2 < J,$$

each read at every $2^J$-th row and column. Moduli are kept at every $2^j$-th, where they are smooth: the Fourier transform of what is left
is the mean of the transform's parts that become one frequency.

A wavelet of scale j and angle $\theta$ oscillates along $(\cos\theta, \sin\theta)$, in (columns, rows), at the frequency
$\xi_j = \frac{3\pi}{4} 2^{-j}$, under a Gaussian of width $\sigma_j = 0.8 \cdot 2^j$ along that direction and $\sigma_j / s$ across it,
with slant $s = 4/L$:

$$\hat\psi(\omega) = c\,\bigl(g(\omega - \xi) - \kappa\,g(\omega)\bigr), \qquad
g(\omega) = \exp\bigl(-\tfrac12\sigma^2(\omega_\parallel^2 + \omega_\perp^2/s^2)\bigr).$$

$\kappa$ makes the mean of the wavelet 0. So its transform is real, and a wavelet of scale j on a grid that is $2^r$ times coarser is the
one of scale j - r. All functions sum over the frequencies that one grid cannot tell apart, which is sampling in space.

The factor c makes the Littlewood-Paley sum at most 1, at every frequency and for every coarser grid:

$$|\hat\phi(\omega)|^2 + \tfrac12\sum_{j,\theta}\bigl(|\hat\psi_{j\theta}(\omega)|^2 + |\hat\psi_{j\theta}(-\omega)|^2\bigr) \le 1.$$

Then no layer of the transform adds energy to a real signal, nor distance between two.

Responses to random filters, averaged over cells: of a patch p of m pixels with mean $\bar p$, and a Gaussian filter w, centred, of norm 1,
$z = \langle w, p\rangle / \sqrt{\|p - \bar p\|^2/m + s}$; dividing by the patch's own contrast makes bright and dim images alike.

Reference: Mallat 2012, Group invariant scattering, arXiv:1101.2286v3; Bruna, Mallat 2013, Invariant scattering convolution networks,
arXiv:1203.1513v2.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_count, require_nonnegative
from lethe.errors import InputError
from lethe.mechanisms.base import Array

_FREQUENCY, _WIDTH = 3.0 * math.pi / 4.0, 0.8  # of the finest wavelet
_ALIASES = (-1, 0, 1)  # multiples of 2 pi: at the next one every function here is below 1e-6 of its largest value, of L >= 4
_BETWEEN = 1.0 - 1e-3  # what the sum may be larger between the points where it is looked at
_MOST_SCALES, _FEWEST_ANGLES, _MOST_ANGLES = 6, 4, 32


def wavelet(shape: tuple[int, int], scale: int, angle: float, angles: int) -> Array:
    r"""$\hat\psi$ of scale j and angle $\theta$ before the factor c: real, 0 at frequency 0, about 1 at its largest, as of `fft2`."""
    frequency, width = _FREQUENCY / 2.0**scale, _WIDTH * 2.0**scale
    bump, around_zero = np.zeros(shape), np.zeros(shape)
    for down, across in _plane(shape):
        along, across_wave = math.cos(angle) * across + math.sin(angle) * down, math.cos(angle) * down - math.sin(angle) * across
        square = np.square(across_wave * angles / 4.0)
        bump += np.exp(-0.5 * width**2 * (np.square(along - frequency) + square))
        around_zero += np.exp(-0.5 * width**2 * (np.square(along) + square))
    return bump - bump[0, 0] / around_zero[0, 0] * around_zero


def low_pass(points: int, scale: int) -> Array:
    r"""$\hat\phi$ along one axis of so many points, as of `fft`: a Gaussian of width $0.8 \cdot 2^{J-1}$ in space, 1 at frequency 0."""
    width = _WIDTH * 2.0 ** (scale - 1)
    kernel = np.zeros(points)
    for alias in _ALIASES:
        kernel += np.exp(-0.5 * np.square(width * (2.0 * math.pi) * (np.fft.fftfreq(points) + alias)))
    return kernel / kernel[0]


@lru_cache(maxsize=16)
def gain(scales: int, angles: int) -> float:
    """c, for J >= 1 scales and L >= 4 angles: the same for images of all sizes."""
    fine = (min(32 * 2**scales, 256),) * 2  # the largest scale has structure of the size 2^-J
    smallest = math.inf
    for coarser in range(1, scales + 1):  # after r halvings of the grid, J - r scales are left
        room, energy = 1.0 - np.square(np.outer(low_pass(fine[0], coarser), low_pass(fine[1], coarser))), _energy(fine, coarser, angles)
        positive = energy > 1e-9  # not at frequency 0, where both are 0
        smallest = min(smallest, float((room[positive] / energy[positive]).min()))
    return _BETWEEN * math.sqrt(smallest)


@lru_cache(maxsize=64)
def _bank(shape: tuple[int, int], scale: int, angles: int, scales: int) -> Array:
    r"""$\hat\psi$ of the wavelets of one scale, at angles $\pi l / L$, c included, shape (L, rows, columns), read-only."""
    factor = gain(scales, angles)
    bank = np.stack([factor * wavelet(shape, scale, math.pi * angle / angles, angles) for angle in range(angles)])
    bank.flags.writeable = False
    return bank


def _plane(shape: tuple[int, int]) -> list[tuple[Array, Array]]:
    """Frequencies down and across, in radians a pixel, once for each pair of aliases."""
    down, across = (2.0 * math.pi * np.fft.fftfreq(points) for points in shape)
    return [
        (
            np.add.outer(down + 2.0 * math.pi * down_alias, np.zeros(shape[1])),
            np.add.outer(np.zeros(shape[0]), across + 2.0 * math.pi * two),
        )
        for down_alias in _ALIASES
        for two in _ALIASES
    ]


def _energy(shape: tuple[int, int], scales: int, angles: int) -> Array:
    """The wavelets' part of the sum, with c = 1."""
    total = np.zeros(shape)
    for scale in range(scales):
        for angle in range(angles):
            squares = np.square(wavelet(shape, scale, math.pi * angle / angles, angles))
            mirrored = np.roll(squares[::-1, ::-1], (1, 1), axis=(0, 1))
            total += (squares + mirrored) / 2.0
    return total


Path = tuple[tuple[int, int], ...]
"""Which wavelets a channel went through: (scale j, angle l) once an order, none for the average alone."""


class Scattering2d(nn.Module):
    r"""`ScatteringFeatures` of images of one size as a module, each image by itself, padded by reflection at its edges.

    Channels come in the order of `paths`: $S_0$; $S_1$ by (j, l); $S_2$ by $(j_1, l_1, j_2, l_2)$, the last number fastest. With J = 2 and
    L = 8 they are 81: 1 + 16 + 64.

    Args:
        shape: rows and columns of the images, each above $2^J$.
        scales, angles: as of `ScatteringFeatures`.
        dtype: of images and channels, torch.float32 or torch.float64.
    Attributes: `paths` (one a channel), `channels` (their number K), `output_shape` (rows and columns of the result).
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
        single = [(scale, angle) for scale in range(self.scales) for angle in range(self.angles)]
        self.paths: tuple[Path, ...] = ((), *((step,) for step in single), *((a, b) for a in single for b in single if b[0] > a[0]))
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
                    self._keep(f"wavelets{level}{scale}", _bank(grid, scale - level, self.angles, self.scales) / 4.0 ** (scale - level))

    def forward(self, images: Tensor) -> Tensor:
        """The channels of every image, shape (..., K, H / 2^J, W / 2^J), rounded down, of images of shape (..., H, W), of type dtype."""
        if tuple(images.shape[-2:]) != self.shape:
            raise InputError(f"images: got shape {tuple(images.shape)}; it needs (..., {self.shape[0]}, {self.shape[1]}).")
        leading = images.shape[:-2]
        flat = images.reshape(-1, 1, *self.shape)
        padded = flat.index_select(2, self._buffer("pixels0")).index_select(3, self._buffer("pixels1"))
        transformed = torch.fft.fft2(padded)
        averages = [self._average(padded, 0)]
        second: list[Tensor] = []
        for first in range(self.scales):
            moduli = _moduli(transformed[:, 0], self._buffer(f"wavelets0{first}"), 2**first)
            averages.append(self._average(moduli, first))
            if first + 1 < self.scales:
                second.append(self._second(moduli, first))
        return torch.cat([*averages, *second], dim=1).reshape(*leading, self.channels, *self.output_shape)

    def _second(self, moduli: Tensor, first: int) -> Tensor:
        """All channels of order 2 behind the wavelets of one scale, shape (n, channels, rows, columns)."""
        transformed = torch.fft.fft2(moduli)
        parts = []
        for scale in range(first + 1, self.scales):
            deeper = _moduli(transformed, self._buffer(f"wavelets{first}{scale}"), 2 ** (scale - first))
            averaged = self._average(deeper, scale)
            parts.append(averaged.reshape(len(moduli), self.angles, self.angles, *self.output_shape))
        return torch.stack(parts, dim=2).flatten(1, 3)

    def _average(self, maps: Tensor, level: int) -> Tensor:
        """Low pass and samples at once, a matrix on each side, for maps on the grid of a level."""
        return self._buffer(f"average{level}0") @ maps @ self._buffer(f"average{level}1").mT

    def _keep(self, name: str, values: np.ndarray) -> None:
        self.register_buffer(f"_{name}", torch.tensor(values, dtype=self._dtype), persistent=False)

    def _buffer(self, name: str) -> Tensor:
        return self.get_buffer(f"_{name}")


def _averages(points: int, scale: int, samples: int, step: int) -> np.ndarray:
    """Circular convolution with the low pass along one axis, read at every `step`-th point from the image's first pixel on."""
    kernel = np.fft.ifft(low_pass(points, scale)).real
    samples_at = step * (1 + np.arange(samples))
    return kernel[(samples_at[:, None] - np.arange(points)) % points]


def _reflected(side: int, before: int, padded: int) -> Tensor:
    """Which pixel stands where on the padded axis: there and back again, as often as there is room."""
    period = 2 * side - 2
    sources = (torch.arange(padded) - before) % period
    return torch.where(sources < side, sources, period - sources)


def _moduli(transformed: Tensor, wavelets: Tensor, step: int) -> Tensor:
    r"""$|x\star\psi|$ at every `step`-th row and column."""
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


_STEADY = 10.0 / 255.0**2  # s: a patch with less contrast than some grey levels is not blown up


class RandomConvolutions2d(nn.Module):
    r"""`RandomConvolutionFeatures` as a module: $\max(z - t, 0)$ of every filter, then $\max(-z - t, 0)$ of every filter.

    Args:
        channels: of the images, at least 1.
        filters, kernel_size, cells, threshold, seed: as of `RandomConvolutionFeatures`.
        dtype: of images and channels, torch.float32 or torch.float64.
    """

    weights: Tensor

    def __init__(
        self,
        channels: int = 1,
        *,
        filters: int = 256,
        kernel_size: int = 5,
        cells: int = 4,
        threshold: float = 0.5,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.kernel_size = require_count("kernel_size", kernel_size, low=2, high=1000)
        self.cells = require_count("cells", cells, low=1, high=1000)
        self.threshold = require_nonnegative("threshold", threshold, allow_infinity=False)
        count, depth = require_count("filters", filters, high=10**6), require_count("channels", channels, high=10**6)
        shape = count, depth, self.kernel_size, self.kernel_size
        drawn = np.random.default_rng(require_count("seed", seed, low=0, high=2**63 - 1)).standard_normal(shape)
        drawn -= drawn.mean(axis=(1, 2, 3), keepdims=True)
        drawn /= np.sqrt(np.square(drawn).sum(axis=(1, 2, 3), keepdims=True))
        self.register_buffer("weights", torch.tensor(drawn, dtype=dtype), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """The channels of every image, shape (n, 2F, cells, cells), of images of shape (n, C, H, W), of type dtype."""
        require_patches(tuple(images.shape), self.weights.shape[1], self.kernel_size, self.cells)
        box = torch.ones_like(self.weights[:1]) / self.weights[0].numel()
        centred = images - images.mean(dim=(1, 2, 3), keepdim=True)  # filters do not see it, and squares lose nothing to it
        mean = nn.functional.conv2d(centred, box)
        spread = (nn.functional.conv2d(centred.square(), box) - mean.square()).clamp_min_(0.0)
        responses = nn.functional.conv2d(centred, self.weights) / (spread + _STEADY).sqrt()
        rectified = torch.cat([responses - self.threshold, -responses - self.threshold], dim=1).clamp_min_(0.0)
        return nn.functional.adaptive_avg_pool2d(rectified, self.cells)


def require_patches(shape: tuple[int, ...], channels: int, kernel_size: int, cells: int) -> None:
    """Refuse images, of shape (n, C, H, W), that have too few patches, or other channels than the filters."""
    smallest_side = kernel_size + cells - 1
    if len(shape) != 4 or shape[1] != channels or min(shape[2:]) < smallest_side:
        raise InputError(
            f"images: got shape {shape}; kernel_size = {kernel_size} and cells = {cells} need (n, {channels}, H, W) with H and W at least "
            f"{smallest_side}.",
            source="the images, and the parameters kernel_size and cells",
            remedy="take smaller kernels or fewer cells, or larger images",
        )
