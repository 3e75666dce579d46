r"""Morlet wavelets and the Gaussian they leave room for, as Fourier transforms on the grid of an image.

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

Reference: Bruna, Mallat 2013, Invariant scattering convolution networks, arXiv:1203.1513v2.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from lethe.mechanisms.base import Array

_FREQUENCY, _WIDTH = 3.0 * math.pi / 4.0, 0.8  # of the finest wavelet
_ALIASES = (-1, 0, 1)  # multiples of 2 pi: at the next one every function here is below 1e-6 of its largest value, of L >= 4
_BETWEEN = 1.0 - 1e-3  # what the sum may be larger between the points where it is looked at


def wavelet(shape: tuple[int, int], scale: int, angle: float, angles: int) -> Array:
    r"""$\hat\psi$ of one wavelet before the factor c: real, 0 at frequency 0, about 1 at its largest.

    Args:
        shape: rows and columns of the grid.
        scale: j >= 0 on this grid.
        angle: $\theta$, in radians.
        angles: L, which sets the slant.
    Returns:
        Shape (rows, columns), at the frequencies of `numpy.fft.fft2`.
    """
    frequency, width = _FREQUENCY / 2.0**scale, _WIDTH * 2.0**scale
    bump, around_zero = np.zeros(shape), np.zeros(shape)
    for down, across in _plane(shape):
        along, beside = math.cos(angle) * across + math.sin(angle) * down, math.cos(angle) * down - math.sin(angle) * across
        square = np.square(beside * angles / 4.0)
        bump += np.exp(-0.5 * width**2 * (np.square(along - frequency) + square))
        around_zero += np.exp(-0.5 * width**2 * (np.square(along) + square))
    return bump - bump[0, 0] / around_zero[0, 0] * around_zero


def low_pass(points: int, scale: int) -> Array:
    r"""$\hat\phi$ along one axis, the plane's being a product of two: a Gaussian of width $0.8 \cdot 2^{J-1}$ in space, 1 at 0.

    Args:
        points: of the axis.
        scale: J >= 1 on this grid.
    Returns:
        Shape (points,), at the frequencies of `numpy.fft.fft`.
    """
    width = _WIDTH * 2.0 ** (scale - 1)
    found = np.zeros(points)
    for alias in _ALIASES:
        found += np.exp(-0.5 * np.square(width * (2.0 * math.pi) * (np.fft.fftfreq(points) + alias)))
    return found / found[0]


def littlewood_paley(shape: tuple[int, int], scales: int, angles: int) -> Array:
    """The sum above for the wavelets of `bank` and the low pass, shape (rows, columns).

    Args:
        shape: rows and columns of the grid.
        scales: J.
        angles: L.
    """
    return _low_energy(shape, scales) + gain(scales, angles) ** 2 * _energy(shape, scales, angles)


@lru_cache(maxsize=16)
def gain(scales: int, angles: int) -> float:
    """c, for J scales and L angles: the same for images of all sizes.

    Args:
        scales: J >= 1.
        angles: L >= 4.
    """
    fine = (min(32 * 2**scales, 256),) * 2  # the largest scale has structure of the size 2^-J
    found = math.inf
    for coarser in range(1, scales + 1):  # after r halvings of the grid, J - r scales are left
        room, energy = 1.0 - _low_energy(fine, coarser), _energy(fine, coarser, angles)
        seen = energy > 1e-9  # not at frequency 0, where both are 0
        found = min(found, float((room[seen] / energy[seen]).min()))
    return _BETWEEN * math.sqrt(found)


@lru_cache(maxsize=64)
def bank(shape: tuple[int, int], scale: int, angles: int, scales: int) -> Array:
    r"""$\hat\psi$ of the wavelets of one scale, c included, read-only.

    Args:
        shape: rows and columns of the grid.
        scale: j >= 0 on this grid.
        angles: L; angle l is $\pi l / L$.
        scales: J of the whole transform, on which c depends.
    Returns:
        Shape (L, rows, columns).
    """
    factor = gain(scales, angles)
    found = np.stack([factor * wavelet(shape, scale, math.pi * angle / angles, angles) for angle in range(angles)])
    found.flags.writeable = False
    return found


def _plane(shape: tuple[int, int]) -> list[tuple[Array, Array]]:
    """Frequencies down and across, in radians a pixel, once for each pair of aliases."""
    down, across = (2.0 * math.pi * np.fft.fftfreq(points) for points in shape)
    return [
        (np.add.outer(down + 2.0 * math.pi * one, np.zeros(shape[1])), np.add.outer(np.zeros(shape[0]), across + 2.0 * math.pi * two))
        for one in _ALIASES
        for two in _ALIASES
    ]


def _low_energy(shape: tuple[int, int], scales: int) -> Array:
    return np.square(np.outer(low_pass(shape[0], scales), low_pass(shape[1], scales)))


def _energy(shape: tuple[int, int], scales: int, angles: int) -> Array:
    """The wavelets' part of the sum, with c = 1."""
    total = np.zeros(shape)
    for scale in range(scales):
        for angle in range(angles):
            squares = np.square(wavelet(shape, scale, math.pi * angle / angles, angles))
            mirrored = np.roll(squares[::-1, ::-1], (1, 1), axis=(0, 1))
            total += (squares + mirrored) / 2.0
    return total
