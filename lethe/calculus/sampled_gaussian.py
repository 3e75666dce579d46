r"""Random batches, every iterate released: the sampled Gaussian mechanism, composed numerically on top of `dp_accounting`.

Noise levels $z$ are noise multipliers: the standard deviation of the noise on the batch SUM is $z$ times one record's gradient bound.

Four bounds are computed and the smallest counts, since each of them holds by itself:

- the Gaussian mechanism without sampling: tell the adversary which batches hold the record, and only Gaussian pairs are left;
- the chance that the record is ever drawn, as $\delta$ at $\epsilon = 0$;
- a Rényi curve, which reaches every $\delta > 0$;
- for Poisson batches a privacy loss distribution in both directions, discretised upwards, with an allowance for its floating point.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.calculus.base import freeze
from lethe.calculus.composition import compose_gdp
from lethe.calculus.conversions import profile_epsilon
from lethe.calculus.domains import FloatArray, outside, require_delta, require_nonnegative, require_probability, require_vector
from lethe.calculus.guarantees import GDP, ApproxDP, Guarantee, NotPrivate, RDPCurve, Tightest
from lethe.calculus.normal import log_mixture, round_up
from lethe.errors import InputError

Design = Literal["poisson", "without_replacement"]
Relation = Literal["replace_one", "zero_out", "add_or_remove"]

_EPS = float(np.finfo(np.float64).eps)
_MOST_RENYI_LEVELS = 64
_MOST_LOSS_LEVELS = 32
_FINEST_INTERVAL = 1e-4
_MOST_POINTS_TO_BUILD = 300_000
_MOST_POINTS = 2_000_000
# Beyond this one-step privacy loss no epsilon of interest is left and exponentials overflow: the other two bounds answer.
_LARGEST_LOSS = 500.0
# Below this one, rounding of the one-step profile outweighs the profile.
_SMALLEST_LOSS = 1e-8
# One hundred thousandth of an epsilon is what discretisation may cost where the number of points allows it.
_DISCRETISATION = 1e-5
# Mass lost to a T-fold convolution by Fourier transform: at most 1.8e-16 T over nine cases against extended precision; ten times that.
_FOURIER_ERROR_A_STEP = 2e-15
_WEAKEST_NOISE, _STRONGEST_NOISE = 1e-100, 1e6
# Sparser above 20, because the bound for batches of fixed size takes time quadratic in the order up to 256.
_ORDERS = tuple(
    [1.0 + k / 10 for k in range(1, 100)]
    + [float(k) for k in [*range(11, 20), *range(20, 32, 2), *range(32, 64, 4), 64, 80, 96, 128, 257, 512, 1024, 2048]]
)


@contextmanager
def _quiet() -> Generator[None]:
    """Silence dp_accounting's own log lines and numpy's flags for one call: an order it cannot compute is infinite, which is a bound."""
    logger = logging.getLogger("absl")

    def refuse(_: logging.LogRecord) -> bool:
        return False

    logger.addFilter(refuse)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        logger.removeFilter(refuse)


@lru_cache(maxsize=512)
def _renyi_values(probability: float, noise: float, design: Design, relation: Relation) -> tuple[float, ...]:
    """One step's Rényi bound at `_ORDERS`, rounded up."""
    orders = np.array(_ORDERS)
    if design == "poisson" and relation == "replace_one":
        # No published closed form bounds this pair; joint convexity does: E[(P/Q)^alpha] <= 1 - q + q exp(alpha (alpha-1) (2/z)^2 / 2).
        with np.errstate(over="ignore"):
            values = log_mixture(probability, 2.0 * orders * (orders - 1.0) / (noise * noise)) / (orders - 1.0)
    else:
        values = _dp_accounting_renyi(probability, noise, design)
    # Before the logarithm is divided by alpha - 1: the series of a fractional order stops at e^-30 of its sum; all sums are rounded.
    rounding = np.where(orders % 1.0 == 0.0, 1e-14, 1e-12) + 8.0 * _EPS * np.minimum(1.0, orders * probability) * special.gammaln(
        orders + 1.0
    ).clip(1.0)
    values = np.maximum(values, 0.0) * (1.0 + 1e-12) + rounding / (orders - 1.0)
    return tuple(np.where(np.isnan(values), np.inf, values).tolist())


def _dp_accounting_renyi(probability: float, noise: float, design: Design) -> FloatArray:
    # dp_accounting takes most of a second to import, and most certificates never need it.
    from dp_accounting import dp_event, privacy_accountant  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.rdp import rdp_privacy_accountant  # pyright: ignore[reportMissingTypeStubs]

    relations = privacy_accountant.NeighboringRelation
    if design == "poisson":
        event: Any = dp_event.PoissonSampledDpEvent(probability, dp_event.GaussianDpEvent(noise))
        relation: Any = relations.ADD_OR_REMOVE_ONE
    else:
        # Theorem 27 needs every two of three batches at distance one: with the record, with its neighbour, and with some other
        # record in its place. The third is up to twice the gradient bound from the first, whatever the relation.
        sample, size = probability.as_integer_ratio()
        event = dp_event.SampledWithoutReplacementDpEvent(size, sample, dp_event.GaussianDpEvent(0.5 * min(noise, _STRONGEST_NOISE)))
        relation = relations.REPLACE_ONE
    accountant: Any = rdp_privacy_accountant.RdpAccountant(list(_ORDERS), relation)
    with _quiet():
        accountant.compose(event)
    return np.array(accountant._rdp, dtype=np.float64)


def _loss_scale(probability: float, noise: float, replaced: bool) -> tuple[float, float]:
    """Width and standard deviation of one step's privacy loss: they choose the discretisation, whose soundness does not depend on them."""
    points = np.linspace(-10.0 * noise - 1.0, 10.0 * noise + 1.0, 4001)
    loss = log_mixture(probability, (points - 0.5) / (noise * noise))
    if replaced:
        loss = loss - log_mixture(probability, (-points - 0.5) / (noise * noise))
    density = (1.0 - probability) * np.exp(-0.5 * (points / noise) ** 2) + probability * np.exp(-0.5 * ((points - 1.0) / noise) ** 2)
    weights = density / density.sum()
    mean = float(weights @ loss)
    return float(np.ptp(loss)), math.sqrt(float(weights @ np.square(loss - mean)))


def _interval(scales: list[tuple[float, float]], counts: tuple[int, ...]) -> float:
    """Length of a discretisation interval: as fine as is useful, as coarse as memory needs. Coarser is only more pessimistic."""
    spread = math.sqrt(math.fsum(count * deviation**2 for (_, deviation), count in zip(scales, counts, strict=True)))
    width = max(width for width, _ in scales)
    useful = min(_FINEST_INTERVAL, math.sqrt(8.0 * _DISCRETISATION * spread / sum(counts)), width / 200.0)
    return max(useful, 1e-6 * width, width * len(counts) / _MOST_POINTS_TO_BUILD, (16.0 * spread + 2.0 * width) / _MOST_POINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LossProfile:
    """The privacy profile of a privacy loss distribution, with an allowance for the floating point that made it."""

    distribution: Any
    allowance: float

    def __call__(self, epsilon: float) -> float:
        with _quiet():
            delta = float(self.distribution.get_delta_for_epsilon(float(epsilon))) if math.isfinite(epsilon) else 0.0
        return 1.0 if math.isnan(delta) else min(max(delta, 0.0) + self.allowance, 1.0)


def _loss_profile(probability: float, noise: tuple[float, ...], counts: tuple[int, ...], relation: Relation) -> _LossProfile | None:
    """The privacy profile of the composed privacy loss distribution, or None where it would not fit in floating point."""
    with np.errstate(all="ignore"):
        scales = [_loss_scale(probability, level, relation == "replace_one") for level in noise]
    if not all(_SMALLEST_LOSS < width < _LARGEST_LOSS for width, _ in scales):
        return None
    # As above: a slow import.
    from dp_accounting import privacy_accountant  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld import privacy_loss_distribution  # pyright: ignore[reportMissingTypeStubs]

    relations = privacy_accountant.NeighboringRelation
    neighbours: Any = relations.REPLACE_ONE if relation == "replace_one" else relations.ADD_OR_REMOVE_ONE
    interval = _interval(scales, counts)
    composed: Any = privacy_loss_distribution.identity(interval)
    with _quiet():
        for level, count in zip(noise, counts, strict=True):
            # The class doubles the distance by itself under REPLACE_ONE: +1 on one data set, -1 on the other.
            one: Any = privacy_loss_distribution.from_gaussian_mechanism(
                level, value_discretization_interval=interval, sampling_prob=probability, neighboring_relation=neighbours
            )
            composed = composed.compose(one.self_compose(count))
    return _LossProfile(distribution=composed, allowance=_FOURIER_ERROR_A_STEP * (sum(counts) + 100))


def _round_levels_down(noise: FloatArray, counts: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """At most `most` levels: equal bins of the logarithm, every level lowered to the smallest in its bin. Less noise is sound."""
    if noise.size <= most:
        return noise, counts
    logs = np.log(noise)
    bins = np.minimum(np.floor(most * (logs - logs.min()) / np.ptp(logs)), most - 1)
    used, where = np.unique(bins, return_inverse=True)
    return np.array([noise[where == k].min() for k in range(used.size)]), np.bincount(where, weights=counts).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussian(Guarantee):
    r"""The composition of sampled Gaussian steps, all of whose outputs are released.

    One Poisson step is the pair $(1-q)N(0,z^2) + qN(1,z^2)$ against $N(0,z^2)$, both ways, for `zero_out` and `add_or_remove`, and against
    $(1-q)N(0,z^2) + qN(-1,z^2)$ for `replace_one`. Without replacement the bound is the Rényi one of Wang, Balle and Kasiviswanathan
    with noise $z/2$, for `replace_one` and `zero_out` alike: a batch without the record holds another one in its place.

    Formal guarantee: the batches are drawn afresh each step and kept secret. Poisson: each record enters independently with
    probability q. Without replacement: every batch of its size is equally likely, q being its share of the records.

    Args:
        sampling_probability: $q \in [0, 1]$.
        noise: distinct noise multipliers, > 0, relative to one record's gradient bound, of the sum.
        counts: how many steps at each, >= 1.
        relation: replace_one, zero_out or add_or_remove (Poisson only).
        design: poisson or without_replacement.
        levels_before_rounding: how many distinct levels there were before they were rounded down to `noise`; 0 if they were not.
    Raises:
        InputError: an argument is outside its range, or add_or_remove meets batches of fixed size.
    Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530; Doroshenko et al. 2022, arXiv:2207.04380;
        Wang, Balle, Kasiviswanathan 2019, arXiv:1808.00087, Theorem 27.
    """

    sampling_probability: float
    noise: tuple[float, ...]
    counts: tuple[int, ...]
    relation: Relation
    design: Design
    levels_before_rounding: int = 0
    _bounds: list[Guarantee] = field(init=False, repr=False, compare=False, default_factory=list[Guarantee])
    _profiles: list[_LossProfile | None] = field(init=False, repr=False, compare=False, default_factory=list[_LossProfile | None])
    kind: ClassVar[str] = "sampled_gaussian"

    def __post_init__(self) -> None:
        probability = require_probability("sampling_probability", self.sampling_probability)
        noise = require_vector("noise", self.noise, low=_WEAKEST_NOISE)
        counts = require_vector("counts", self.counts, low=1.0)
        _check_design(self.design, self.relation)
        if noise.shape != counts.shape or np.unique(noise).size != noise.size or np.any(counts != np.floor(counts)):
            raise InputError(
                f"noise has {noise.size} levels and counts {counts.size} entries; each distinct level needs one whole number of steps.",
                source="the arguments noise and counts",
                remedy="list every level once, with how many steps run at it",
            )
        before = int(require_nonnegative("levels_before_rounding", self.levels_before_rounding, allow_infinity=False))
        freeze(self, sampling_probability=probability, levels_before_rounding=before)
        freeze(self, noise=tuple(noise.tolist()), counts=tuple(int(count) for count in counts))

    def epsilon(self, delta: float) -> float:
        r"""The smallest $\epsilon$ of the bounds at $\delta$; the first call builds them (seconds)."""
        target = require_delta(delta)
        bounds, profile = self._built()
        by_bounds = bounds.epsilon(target)
        if profile is None or by_bounds == 0.0:
            return by_bounds
        return min(by_bounds, profile_epsilon(profile, target, high=by_bounds if math.isfinite(by_bounds) else 1.0))

    def delta(self, epsilon: float) -> float:
        r"""The smallest $\delta$ of the bounds at $\epsilon$; the first call builds them (seconds)."""
        level = require_nonnegative("epsilon", epsilon)
        bounds, profile = self._built()
        return bounds.delta(level) if profile is None else min(bounds.delta(level), profile(level))

    def describe(self) -> str:
        """The recipe in words, and whether noise levels were rounded down."""
        levels = f"{min(self.noise):.4g}" if len(self.noise) == 1 else f"{min(self.noise):.4g} to {max(self.noise):.4g}"
        rounded = f", {self.levels_before_rounding} levels rounded down to {len(self.noise)}" if self.levels_before_rounding else ""
        batches = self.design.replace("_", " ")
        return f"sampled Gaussian, {batches}, q = {self.sampling_probability:.4g}, {sum(self.counts)} steps, noise {levels}{rounded}"

    def renyi_curve(self) -> RDPCurve:
        """The Rényi bound of the composition, at 130 orders from 1.1 to 2048, rounded up; seconds for many levels of fixed-size batches."""
        probability = self.sampling_probability
        values = np.zeros(len(_ORDERS))
        for level, count in zip(self.noise, self.counts, strict=True):
            if probability == 1.0:
                values += count * 0.5 * (_distance(self.relation) / level) ** 2 * np.array(_ORDERS)
            elif probability > 0.0:
                values += count * np.array(_renyi_values(probability, level, self.design, self.relation))
        return RDPCurve(_ORDERS, tuple((values * (1.0 + 1e-12)).tolist()))

    def _built(self) -> tuple[Guarantee, _LossProfile | None]:
        if not self._bounds:
            bounds, profile = self._build()
            self._profiles.append(profile)
            self._bounds.append(bounds)
        return self._bounds[0], self._profiles[0]

    def _build(self) -> tuple[Guarantee, _LossProfile | None]:
        unsampled = _unsampled(self.noise, self.counts, self.relation)
        probability = self.sampling_probability
        if probability in (0.0, 1.0):
            return (unsampled if probability == 1.0 else GDP(0.0)), None
        bounds = Tightest((unsampled, self.renyi_curve(), ApproxDP(0.0, _ever_drawn(probability, sum(self.counts)))))
        if self.design == "without_replacement":
            return bounds, None
        fewer, steps = _round_levels_down(np.array(self.noise), np.array(self.counts, dtype=np.float64), _MOST_LOSS_LEVELS)
        return bounds, _loss_profile(probability, tuple(fewer.tolist()), tuple(int(step) for step in steps), self.relation)


def _check_design(design: object, relation: object) -> None:
    if design not in ("poisson", "without_replacement"):
        raise outside("design", design, "poisson or without_replacement")
    if relation not in ("replace_one", "zero_out", "add_or_remove"):
        raise outside("relation", relation, "replace_one, zero_out or add_or_remove")
    if design == "without_replacement" and relation == "add_or_remove":
        raise InputError(
            "relation = 'add_or_remove' with batches of fixed size; it needs Poisson batches, because adding a record changes every batch.",
            source="the arguments design and relation",
            remedy="use replace_one or zero_out, or Poisson batches",
        )


def _distance(relation: Relation) -> float:
    """How far one step moves between neighbours, in units of one record's gradient bound."""
    return 2.0 if relation == "replace_one" else 1.0


def _ever_drawn(probability: float, steps: int) -> float:
    """The chance that a record is in any batch, rounded up: when it is in none, the outputs do not depend on it."""
    return min(round_up(-math.expm1(steps * math.log1p(-probability)), 8.0 * _EPS), 1.0)


def _unsampled(noise: tuple[float, ...], counts: tuple[int, ...], relation: Relation) -> GDP:
    with np.errstate(over="ignore"):
        mus = _distance(relation) * np.sqrt(np.array(counts, dtype=np.float64)) / np.array(noise)
    return GDP(compose_gdp(mus))


def sampled_gaussian(sampling_probability: float, noise_multipliers: ArrayLike, relation: Relation, design: Design) -> Guarantee:
    r"""The guarantee of T sampled Gaussian steps, all outputs released, from their noise multipliers.

    Equal levels are grouped. More than 64 distinct ones are rounded DOWN to at most 64, equally spaced in logarithm (less noise, so
    sound), and `describe()` says so.

    Args:
        sampling_probability: $q \in [0, 1]$: each record's chance to enter a batch, or the share of the records in one.
        noise_multipliers: $z_t \ge 0$, shape (T,), noise of the batch sum relative to one record's gradient bound.
        relation: replace_one, zero_out or add_or_remove (Poisson only).
        design: poisson or without_replacement.
    Returns:
        `SampledGaussian` in general; exactly the `GDP` of composition for q = 1; `GDP(0)` for q = 0; `NotPrivate` if q > 0 and some
        step has no noise.
    Raises:
        InputError: an argument is outside its range, or add_or_remove meets batches of fixed size.
    Reference: as for `SampledGaussian`.
    """
    probability = require_probability("sampling_probability", sampling_probability)
    noise, counts = np.unique(require_vector("noise_multipliers", noise_multipliers, low=0.0), return_counts=True)
    _check_design(design, relation)
    if probability == 0.0:
        return GDP(0.0)
    if noise[0] < _WEAKEST_NOISE:
        return NotPrivate()
    if probability == 1.0:
        return GDP(compose_gdp(_distance(relation) / require_vector("noise_multipliers", noise_multipliers, low=0.0)))
    levels, steps = _round_levels_down(noise, counts.astype(np.float64), _MOST_RENYI_LEVELS)
    return SampledGaussian(
        sampling_probability=probability,
        noise=tuple(levels.tolist()),
        counts=tuple(int(step) for step in steps),
        relation=relation,
        design=design,
        levels_before_rounding=noise.size if levels.size < noise.size else 0,
    )
