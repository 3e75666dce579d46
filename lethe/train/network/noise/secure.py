r"""Noise from a cryptographic source, on a grid, whose privacy does not lean on floating point.

Adding a floating-point Gaussian to a floating-point number leaves traces in the low bits: some outputs are possible from one input and not
from its neighbour (Mironov 2012, for Laplace noise; Holohan & Braghin 2021, for Gaussian). Here both the query and the noise are
multiples of a power of two $\gamma$, and the noise is an exact Gaussian rounded to that grid.

**Statement.** Let $v$ be the tensor that is given, R rounding of each coordinate to $\gamma\mathbb{Z}$, $\nu \sim N(0, \tau^2 I)$ exact.
What comes back is a function of $R(v) + R(\nu) = R(R(v) + \nu)$, since $R(v)$ is on the grid: a post-processing of the Gaussian mechanism
with standard deviation $\tau$ and sensitivity at most $s + \gamma\sqrt d$, if that of $v$ is $s$. So whatever is proved for all iterates of
that mechanism (composition, random batches, in GDP, Rényi or profile form) holds here, with that sensitivity. Of batches of random size
it is that of one record's own contribution (`least_move`).

Covered: the finite resolution and the finite range of the noise, the low bits of the output, prediction of the generator.

Not covered: certificates of the last iterate alone, whose steps must be Lipschitz, which rounding to a grid is not; timing, which depends
on the noise; whoever reads the memory; and it is trusted that the operating system's source is indistinguishable from random bits and
that SciPy's normal quantile is right to 4e-14.

References: Mironov 2012, "On significance of the least significant bits for differential privacy", CCS. Holohan & Braghin 2021, "Secure
random sampling in differential privacy", arXiv:2107.10138. Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy",
arXiv:2004.00010, take another noise on the grid, for which concentrated DP is proved directly; the rounded Gaussian also keeps every
statement that was proved for Gaussians only, such as amplification by sampling.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from lethe.calculus.domains import outside, require_nonnegative, require_positive
from lethe.errors import InputError, LetheError
from lethe.run.run import Run
from lethe.train.core.tensors import checked_tensors, pieces
from lethe.train.network.noise.exact_normals import Words, rounded_normals

RESOLUTION = 28
"""The noise's standard deviation is between 2^28 and 2^29 steps of the grid."""

_PIECE = 2**14
_MOST_STEPS = 2.0**52
_SMALLEST, _LARGEST = 1e-200, 1e200


def grid_spacing(noise_std: float) -> float:
    r"""$\gamma = 2^{\lfloor\log_2\tau\rfloor - 28}$, in the units of $\tau$; data never enters.

    Raises:
        InputError: the standard deviation is not in [1e-200, 1e200].
    """
    noise_std = require_positive("noise_std", noise_std)
    if not _SMALLEST <= noise_std <= _LARGEST:
        raise outside("noise_std", noise_std, f"a number in [{_SMALLEST:g}, {_LARGEST:g}]")
    return math.ldexp(1.0, math.frexp(noise_std)[1] - 1 - RESOLUTION)


def grid_sensitivity(sensitivity: float, noise_std: float, dimension: int) -> float:
    r"""$s + \gamma\sqrt d$, what a change of norm s can become once both neighbours are rounded to the grid; rounded up.

    Args:
        sensitivity: $s \ge 0$, of the tensors before the noise, in their units.
        noise_std: $\tau$.
        dimension: d, the numbers in all tensors together.
    Raises:
        InputError: an argument is outside its range.
    """
    sensitivity = require_nonnegative("sensitivity", sensitivity, allow_infinity=False)
    return (sensitivity + grid_spacing(noise_std) * _root(dimension)) * (1 + 2.0**-50)


def least_move(run: Run) -> float:
    r"""What the rounding to a grid is weighed against: the least distance s that it may add $\gamma\sqrt d$ to.

    How far apart one record's two contributions can be, where batches are of one size. Where a record is drawn, or thrown into a bin, by
    itself, a replaced one is a matter of three sums, without it, with it and with the other: G and -G away from the first, each of
    which rounding moves by as much as their whole distance. So it is G then, and not 2G.
    """
    return run.touch_bound * (run.touch_factor if run.batches.exact_size else 1.0)


def grid_noise_std(noise_std: float, sensitivity: float, dimension: int) -> float:
    r"""The standard deviation to use so that the grid costs nothing: $\tau'$ with $(s + \gamma'\sqrt d)/\tau' \le s/\tau$.

    $$\tau' = \tau\Big/\Big(1 - 2^{-28}\sqrt d\,\frac{\tau}{s}\Big)$$

    because $\gamma' \le 2^{-28}\tau'$. For 11 million parameters and $\tau = s$ it is 1.00001 times as much noise.

    Args:
        noise_std: $\tau > 0$, the one that was planned and certified.
        sensitivity: $s > 0$.
        dimension: d.
    Raises:
        InputError: an argument is outside its range, or the grid is too coarse for so many parameters and so much noise.
    """
    noise_std = require_positive("noise_std", noise_std)
    left = 1.0 - math.ldexp(_root(dimension), -RESOLUTION) * (noise_std / require_positive("sensitivity", sensitivity))
    if left < 0.5:
        raise InputError(
            f"noise_std: got {noise_std:g}; over {dimension} parameters, rounding to its grid outweighs a sensitivity of {sensitivity:g}.",
            source="noise_std, sensitivity and dimension",
            remedy="use NetworkNoise, or less noise relative to the sensitivity.",
        )
    return noise_std / left * (1 + 2.0**-47)  # above the rounding of this and of grid_sensitivity


def _root(dimension: int) -> float:
    if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
        raise outside("dimension", dimension, "an integer >= 1")
    return math.sqrt(dimension)


class SecureNoise:
    r"""Adds $N(0, \tau^2 I)$ to tensors in place, as the head of this file states; used as `NetworkNoise` is, some six times slower.

    Args:
        words: the source of random bytes. The operating system's is cryptographic and has no seed that could leak; give another only for
            repeatable tests, or to put a faster cipher in its place.
    Raises:
        InputError: no function.
    """

    __slots__ = ("_words",)

    def __init__(self, words: Words = os.urandom) -> None:
        if not callable(words):
            raise InputError(f"words: got {type(words).__name__}; it needs a function from a number to that many random bytes.")
        self._words = words

    @torch.no_grad()
    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        r"""$x \leftarrow R(x) + R(\nu)$ for every tensor x, rounded to the tensor's type afterwards.

        Args:
            tensors: gradient sums, displacements or parameters: float32 or float64, of any shapes, on any device; drawn on the CPU.
            noise_std: $\tau$, 0 or from 1e-200 to 1e200; 0 draws nothing and rounds nothing.
        Raises:
            InputError: a tensor that cannot take noise, or a standard deviation out of range; nothing is changed then.
            LetheError: an entry is not finite, or too large for noise this small; nothing is changed then.
        """
        noise_std = require_nonnegative("noise_std", noise_std, allow_infinity=False)
        checked = checked_tensors(tensors)
        if noise_std == 0.0:
            return
        spacing = grid_spacing(noise_std)
        for tensor in checked:
            _refuse_off_grid(tensor, noise_std, spacing)
        for tensor in checked:
            for piece in pieces(tensor, _PIECE):
                # All in doubles that hold these integers exactly; the spacing is a power of two, so both products are exact too. In NumPy,
                # because PyTorch would wake its threads for every piece's rounding.
                steps = np.rint(piece.to(device="cpu", dtype=torch.float64).numpy() / spacing)
                steps += rounded_normals(piece.numel(), noise_std / spacing, self._words).reshape(steps.shape)
                piece.copy_(torch.from_numpy(np.asarray(steps * spacing)))


def _refuse_off_grid(tensor: Tensor, noise_std: float, spacing: float) -> None:
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    if not largest / spacing < _MOST_STEPS:
        raise LetheError(
            f"an entry of size {largest:g} is not on the grid of noise of standard deviation {noise_std:g}.",
            source="noise_std, and what it is added to",
            remedy="check that training has not diverged, or use more noise.",
        )
