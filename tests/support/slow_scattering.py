"""The scattering transform by its definition: wavelets as formulas in space, convolutions as sums, in double precision."""

import math

import numpy as np

from lethe.estimators.features.modules import gain


def slow_scattering(image: np.ndarray, scales: int, angles: int) -> np.ndarray:
    """All channels of one image, shape (K, H / 2^J, W / 2^J)."""
    unit = 2**scales
    padded = np.pad(image, [(unit, -side % unit + unit) for side in image.shape], mode="reflect")
    sizes = [side // unit for side in image.shape]

    def average(maps: np.ndarray, level: int) -> np.ndarray:
        low = gaussian(maps.shape, 0.8 * 2.0 ** (scales - 1 - level))
        step = unit // 2**level
        found = np.real(convolved(maps, low / low.sum()))[::step, ::step]
        return found[1 : 1 + sizes[0], 1 : 1 + sizes[1]]

    def moduli(maps: np.ndarray, scale: int, angle: int) -> np.ndarray:
        wave = gain(scales, angles) * morlet(maps.shape, scale, math.pi * angle / angles, angles)
        return np.abs(convolved(maps, wave))[:: 2**scale, :: 2**scale]

    first = {(scale, angle): moduli(padded, scale, angle) for scale in range(scales) for angle in range(angles)}
    found = [average(padded, 0), *(average(first[key], key[0]) for key in first)]
    for one in first:
        for two in first:
            if two[0] > one[0]:
                # A grid that is coarser by one halving makes every scale one smaller.
                found.append(average(moduli(first[one], two[0] - one[0], two[1]), two[0]))
    return np.stack(found)


def convolved(maps: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """On the torus: every point a sum over all others."""
    rows, columns = maps.shape
    found = np.zeros(maps.shape, dtype=complex)
    for down in range(rows):
        for across in range(columns):
            found += kernel[down, across] * np.roll(maps, (down, across), axis=(0, 1))
    return found


def morlet(shape: tuple[int, int], scale: int, angle: float, angles: int) -> np.ndarray:
    """A Gaussian of width 0.8 2^j along the wave and 0.8 2^j L / 4 across it, times a wave less a constant."""
    width, frequency, slant = 0.8 * 2.0**scale, 0.75 * math.pi / 2.0**scale, 4.0 / angles
    wave, envelope = np.zeros(shape, dtype=complex), np.zeros(shape)
    for y, x in copies(shape):
        along, across = math.cos(angle) * x + math.sin(angle) * y, math.cos(angle) * y - math.sin(angle) * x
        bell = slant / (2.0 * math.pi * width**2) * np.exp(-(along**2 + (slant * across) ** 2) / (2.0 * width**2))
        wave += bell * np.exp(1j * frequency * along)
        envelope += bell
    return wave - wave.sum() / envelope.sum() * envelope


def gaussian(shape: tuple[int, int], width: float) -> np.ndarray:
    return sum(np.exp(-(y**2 + x**2) / (2.0 * width**2)) for y, x in copies(shape))  # pyright: ignore[reportReturnType]


def copies(shape: tuple[int, int]) -> list[tuple[np.ndarray, ...]]:
    """The places of a torus in the plane, again and again."""
    rows, columns = np.arange(shape[0], dtype=float), np.arange(shape[1], dtype=float)
    return [
        np.broadcast_arrays((rows + up * shape[0])[:, None], (columns + left * shape[1])[None, :])
        for up in range(-4, 4)
        for left in range(-4, 4)
    ]
