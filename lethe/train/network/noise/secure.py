r"""Noise from a cryptographic source, on a grid, whose privacy does not depend on floating-point details.

`TrainingNoise` and Flower's rounds call `add_to` once a training step with the sums of clipped gradients (d numbers), where a run asks for
secure noise. $\gamma$ is the grid's spacing, s the sensitivity of the sums, $\tau$ the standard deviation.

Adding a floating-point Gaussian to a floating-point number leaves traces in the low bits: some outputs are possible from one input and not
from its neighbour (Mironov 2012, for Laplace noise; Holohan & Braghin 2021, for Gaussian). Here both the query and the noise are
multiples of a power of two $\gamma$, and the noise is an exact Gaussian rounded to that grid.

**Statement.** Let $v$ be the noiseless tensor, R rounding of each coordinate to $\gamma\mathbb{Z}$, $\nu \sim N(0, \tau^2 I)$ exact.
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

import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import mpmath
import numpy as np
import torch
from scipy import special
from torch import Tensor

from lethe.calculus.domains import outside, require_nonnegative, require_positive
from lethe.errors import InputError, LetheError
from lethe.run.run import Run
from lethe.train.core.tensors import checked_tensors

Words = Callable[[int], bytes]
"""A source of random bytes: given a number, that many uniform independent ones."""

_WORD = 64
# Quantiles up to 4.2 computed from 63 random bits are off by less than 2^-46 for want of bits and by rounding in our own arithmetic; the
# rest of this margin, 4e-14, is left to `special.ndtri`, which states a relative error below 1e-15.
_MARGIN = 2.0**-44
_DEEP_TAIL = np.uint64(2**48)

RESOLUTION = 28
"""The noise's standard deviation is between 2^28 and 2^29 steps of the grid."""

_PIECE = 2**14
_MOST_STEPS = 2.0**52
_SMALLEST, _LARGEST = 1e-200, 1e200


def grid_spacing(noise_std: float) -> float:
    r"""$\gamma = 2^{\lfloor\log_2\tau\rfloor - 28}$, in the units of $\tau$; data never enters."""
    noise_std = require_positive("noise_std", noise_std)
    if not _SMALLEST <= noise_std <= _LARGEST:
        raise outside("noise_std", noise_std, f"a number in [{_SMALLEST:g}, {_LARGEST:g}]")
    return math.ldexp(1.0, math.frexp(noise_std)[1] - 1 - RESOLUTION)


def least_move(run: Run) -> float:
    r"""The sensitivity s that rounding to a grid enlarges to $s + \gamma\sqrt d$, at the least.

    How far apart one record's two contributions can be, where batches are of one size. Where a record is drawn, or thrown into a bin, by
    itself, a replaced one is a matter of three sums, without it, with it and with the other: G and -G away from the first, each of
    which rounding moves by as much as their whole distance. So it is G then, and not 2G.
    """
    return run.touch_bound * (run.touch_factor if run.batches.exact_size else 1.0)


def grid_noise_std(noise_std: float, sensitivity: float, dimension: int) -> float:
    r"""The standard deviation to use so that the grid costs nothing: $\tau'$ with $(s + \gamma'\sqrt d)/\tau' \le s/\tau$.

    $$\tau' = \tau\Big/\Big(1 - 2^{-28}\sqrt d\,\frac{\tau}{s}\Big)$$

    because $\gamma' \le 2^{-28}\tau'$. For 11 million parameters and $\tau = s$ it is 1.00001 times as much noise. Noise $\tau$ was planned
    and certified, s is the sensitivity, d the dimension.
    """
    noise_std = require_positive("noise_std", noise_std)
    remaining = 1.0 - math.ldexp(math.sqrt(dimension), -RESOLUTION) * (noise_std / require_positive("sensitivity", sensitivity))
    if remaining < 0.5:
        raise InputError(
            f"noise_std: got {noise_std:g}; over {dimension} parameters, rounding to its grid outweighs a sensitivity of {sensitivity:g}.",
            source="noise_std, sensitivity and dimension",
            remedy="use NetworkNoise, or less noise relative to the sensitivity.",
        )
    return noise_std / remaining * (1 + 2.0**-47)  # above the rounding of this, and of the division of the two


class SecureNoise:
    r"""Adds $N(0, \tau^2 I)$ to tensors in place, as the head of this file states; used as `NetworkNoise` is, some six times slower.

    The operating system's source of `words` is cryptographic and has no seed that could leak; give another only for repeatable tests, or to
    put a faster cipher in its place.
    """

    def __init__(self, words: Words = os.urandom) -> None:
        self._words = words

    @torch.no_grad()
    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        r"""$x \leftarrow R(x) + R(\nu)$ for every tensor x, rounded to the tensor's type afterwards.

        Nothing is changed where it cannot be added; 0 draws nothing and rounds nothing.
        """
        noise_std = require_nonnegative("noise_std", noise_std, allow_infinity=False)
        checked = checked_tensors(tensors)
        if noise_std == 0.0:
            return
        spacing = grid_spacing(noise_std)
        largest = [float(tensor.abs().max()) for tensor in checked if tensor.numel()]
        if off := [size for size in largest if not size / spacing < _MOST_STEPS]:  # what is not finite too
            raise LetheError(
                f"an entry of size {off[0]:g} is not on the grid of noise of standard deviation {noise_std:g}.",
                source="noise_std, and what it is added to",
                remedy="check that training has not diverged, or use more noise.",
            )
        for tensor in checked:
            flat = tensor.detach()
            for piece in flat.view(-1).split(_PIECE) if flat.is_contiguous() else (flat,):
                # All in doubles that hold these integers exactly; the spacing is a power of two, so both products are exact too. In NumPy,
                # because PyTorch would wake its threads for every piece's rounding.
                steps = np.rint(piece.to(device="cpu", dtype=torch.float64).numpy() / spacing)
                steps += rounded_normals(piece.numel(), noise_std / spacing, self._words).reshape(steps.shape)
                piece.copy_(torch.from_numpy(np.asarray(steps * spacing)))


def rounded_normals(count: int, scale: float, words: Words = os.urandom) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    r"""Independent copies of $\mathrm{round}(\sigma Z)$, $Z \sim N(0, 1)$: the real Gaussian, rounded, and not one made of doubles.

    Each takes 64 bits: a sign, and the upper tail's probability $p \in (0, \frac12)$ known to within $2^{-64}$. The result is the k with

    $$\Phi\big(-\tfrac{k+1/2}{\sigma}\big) < p \le \Phi\big(-\tfrac{k-1/2}{\sigma}\big)$$

    found from the quantile in doubles; where that lies too near to a half-integer for doubles to tell (about $2^{-43}\sigma$ of all draws)
    and where p is below $2^{-16}$, more bits of p are drawn and the inequality is decided in high precision. The scale is $\sigma \in [1,
    2^{32}]$, any real number; the result has shape (count,).

    Reference: exact sampling by lazy bits: Karney 2016, "Sampling exactly from the normal distribution", ACM TOMS 42(1):3.
    """
    raw = np.frombuffer(words(8 * count), dtype="<u8", count=count)  # an error of NumPy's where the source gives fewer
    tails = raw >> np.uint64(1)
    sizes = special.ndtri((tails.astype(np.float64) + 0.5) * 2.0**-_WORD) * -scale
    nearest = np.rint(sizes)
    undecided = (np.abs(sizes - nearest) > 0.5 - _MARGIN * scale) | (tails < _DEEP_TAIL)
    for index in np.flatnonzero(undecided):
        nearest[index] = _decided(int(tails[index]), scale, words)
    return np.where(raw & np.uint64(1), -nearest, nearest).astype(np.int64)


def _decided(tail: int, scale: float, words: Words) -> int:
    """The k of `rounded_normals` for p in [tail, tail + 1] / 2^64, with as many more bits as it takes."""
    bits = _WORD
    while True:
        tail = (tail << _WORD) | int(np.frombuffer(words(8), dtype="<u8", count=1)[0])
        bits += _WORD
        with mpmath.workprec(bits + _WORD):
            low, high = mpmath.ldexp(tail, -bits), mpmath.ldexp(tail + 1, -bits)
            guess = round(-float(special.ndtri(max(float(high), 5e-324))) * scale)
            # A slack for the rounding of erfc itself: whoever is this near to a boundary draws more bits.
            slack = mpmath.ldexp(1, -bits)
            for k in range(max(guess - 1, 0), guess + 2):
                if _upper(k + 0.5, scale) * (1 + slack) < low and high * (1 + slack) < _upper(k - 0.5, scale):
                    return k


def _upper(border: float, scale: float) -> Any:
    r"""$\Phi(-x/\sigma)$; borders are below 2^50, so they are exact doubles."""
    return mpmath.erfc(mpmath.mpf(border) / mpmath.mpf(scale) / mpmath.sqrt(2)) / 2
