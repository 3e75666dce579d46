"""Scaling of a guarantee when all the noise of its mechanism grows by one factor, so that planning judges a run once."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

import numpy as np

from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.base import Guarantee
from lethe.calculus.domains import FloatArray, require_positive
from lethe.calculus.guarantees import GDP, GDPMixture, NotPrivate, Tightest, WithSlack
from lethe.calculus.sampled.gaussian import SampledGaussian, merged_levels
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian


@singledispatch
def noise_scaled(guarantee: Guarantee, factor: float) -> Guarantee:
    r"""The guarantee of the same Gaussian mechanism with every noise standard deviation multiplied by `factor`.

    $\mu$ divides by the factor, for each component of a mixture and each bin; the noise levels of a sampled Gaussian multiply by it, and
    the Gaussian beside them divides. True up to the rounding of the last digit: certify the scaled run itself before relying on it.

    Args:
        guarantee: one made of Gaussian mechanisms.
        factor: finite, > 0.
    Raises:
        InputError: the factor is outside its range.
        TypeError: the guarantee does not say how it depends on noise (a Rényi curve, a single point).
    """
    raise TypeError(f"a guarantee of kind {guarantee.kind} does not say how it depends on the noise")


@noise_scaled.register
def _(guarantee: GDP, factor: float) -> Guarantee:
    return GDP(float(_over((guarantee.mu,), require_positive("factor", factor))[0]))


@noise_scaled.register
def _(guarantee: GDPMixture, factor: float) -> Guarantee:
    mus = _over(guarantee.mus, require_positive("factor", factor))
    return GDPMixture(tuple(mus.tolist()), guarantee.weights)


@noise_scaled.register
def _(guarantee: NotPrivate, factor: float) -> Guarantee:
    require_positive("factor", factor)
    return guarantee


@noise_scaled.register
def _(guarantee: Tightest, factor: float) -> Guarantee:
    return Tightest(tuple(noise_scaled(part, factor) for part in guarantee.parts))


@noise_scaled.register
def _(guarantee: WithSlack, factor: float) -> Guarantee:
    return WithSlack(noise_scaled(guarantee.guarantee, factor), guarantee.slack)


@noise_scaled.register
def _(guarantee: SampledGaussian, factor: float) -> Guarantee:
    noise, counts = merged_levels(np.asarray(guarantee.noise) * require_positive("factor", factor), guarantee.counts)
    return replace(guarantee, noise=noise, counts=counts, gaussian_mu=float(_over((guarantee.gaussian_mu,), factor)[0]))


@noise_scaled.register
def _(guarantee: WindowedGaussian, factor: float) -> Guarantee:
    scaled = np.asarray(guarantee.noise) * require_positive("factor", factor)
    mus = _over(guarantee.shift_mus, factor)
    return replace(guarantee, noise=tuple(scaled.tolist()), shift_mus=tuple(mus.tolist()))


@noise_scaled.register
def _(guarantee: BallsInBinsGaussian, factor: float) -> Guarantee:
    mus, counts = merged_levels(_over(guarantee.mus, require_positive("factor", factor)), guarantee.counts)
    return replace(guarantee, mus=mus, counts=counts)


def _over(mus: tuple[float, ...], factor: float) -> FloatArray:
    """0 stays 0, and what underflows is not 0."""
    given = np.asarray(mus)
    with np.errstate(over="ignore", under="ignore"):
        return np.where(given == 0.0, 0.0, np.maximum(given / factor, 5e-324))
