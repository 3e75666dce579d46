r"""Random batches, every iterate released: the sampled Gaussian mechanism, composed numerically.

`theorems.sampling`, the estimators and `dp_events` build it for random batches, with the noise multipliers z of the steps and the chance q
that a batch holds the record.

Several bounds are computed and the smallest counts, since each of them holds by itself:

- the Gaussian mechanism without sampling: tell the adversary which batches hold the record, and only Gaussian pairs are left;
- with little noise, the number of batches that hold the record told alone: a mixture of Gaussian pairs;
- the chance that the record is ever drawn, as $\delta$ at $\epsilon = 0$, when no other mechanism is composed with the steps;
- a privacy loss distribution, discretised upwards from the profiles of one step, with an allowance for its floating point;
- a Rényi curve, which reaches every $\delta > 0$.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.calculus.composition import compose_gdp
from lethe.calculus.domains import FloatArray, require_counted, require_delta, require_nonnegative, require_probability, require_vector
from lethe.calculus.guarantees import GDP, ApproxDP, GDPMixture, Guarantee, NotPrivate, RDPCurve, Tightest, freeze
from lethe.calculus.normal import log_mixture
from lethe.calculus.privacy_losses.distributions import (
    LARGEST_LOSS,
    SMALLEST_LOSS,
    USUAL_TAIL,
    Factor,
    compose_losses,
)
from lethe.calculus.privacy_losses.dominating import dominating_factor
from lethe.calculus.rounding import above, count_above, raised, round_up
from lethe.calculus.sampled.profiles import SampledStep, step_losses, step_width
from lethe.calculus.sampled.renyi import (
    ORDERS,
    WEAKEST_NOISE,
    Design,
    Relation,
    distance,
    renyi_values,
    require_design,
    round_levels_down,
)
from lethe.calculus.upward_formatting import shown

_EPS = float(np.finfo(np.float64).eps)
# A Renyi curve takes 40 to 150 microseconds a level.
_MOST_RENYI_LEVELS = 20_000
MOST_LEVELS = 128  # of the loss distribution
# A Gaussian part smaller than this is counted as this large, for the same reason as SMALLEST_LOSS.
_SMALLEST_MU = SMALLEST_LOSS
_LEVELS_AT_ONCE = 4096
# With less noise than this, the losses of a step may be too wide for a grid, and Renyi curves say little.
_LITTLE_NOISE = 0.2
_MOST_COUNTS, _MOST_COUNTED = 1000, 10**9


class Built(Guarantee):
    """A guarantee that builds its bounds when it is first asked (seconds): a subclass has an empty list `_bounds`."""

    __slots__ = ()
    _bounds: list[Guarantee]

    def epsilon(self, delta: float) -> float:
        r"""The smallest $\epsilon$ of the bounds at $\delta$."""
        return self._built().epsilon(require_delta(delta))

    def delta(self, epsilon: float) -> float:
        r"""The smallest $\delta$ of the bounds at $\epsilon$."""
        return self._built().delta(require_nonnegative("epsilon", epsilon))

    def _built(self) -> Guarantee:
        """The bounds, built at the first call."""
        if not self._bounds:
            self._bounds.append(self._build())
        return self._bounds[0]

    @abstractmethod
    def _build(self) -> Guarantee:
        """The guarantee that a subclass computes, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussian(Built):
    r"""The composition of sampled Gaussian steps, all of whose outputs are released.

    One Poisson step is the pair $(1-q)N(0,z^2) + qN(1,z^2)$ against $N(0,z^2)$, both ways, for `zero_out` and `add_or_remove`, and against
    $(1-q)N(0,z^2) + qN(-1,z^2)$ for `replace_one`. Without replacement one step is $C_q(T(N(0,1), N(2/z,1)))$-DP (Dong, Roth and Su)
    for `replace_one` and no worse than $(1-q)N(-1,z^2) + qN(1,z^2)$ against $(1-q)N(-1,z^2) + qN(0,z^2)$, both ways, for `zero_out`: a
    batch without the record holds another one in its place. The Rényi bound follows from these pairs.

    Formal guarantee: the batches are drawn afresh each step and kept secret. Poisson: each record enters independently with
    probability q. Without replacement: every batch of its size is equally likely, q being its share of the records.

    $q \in [0, 1]$. `noise` has distinct noise multipliers > 0, of the sum, relative to one record's gradient bound; `counts`, how many
    steps run at each, >= 1. add_or_remove is for Poisson batches only. `levels_before_rounding` is how many distinct levels there were
    before they were rounded down to `noise`; 0 if they were not. `gaussian_mu` is $\mu \ge 0$, finite: a $\mu$-GDP Gaussian mechanism
    composed with the steps, on its own coins; 0 if there is none. Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530; Doroshenko et
    al. 2022, arXiv:2207.04380; Dong, Roth, Su 2022, arXiv:1905.02383, Theorem 4.2.
    """

    sampling_probability: float
    noise: tuple[float, ...]
    counts: tuple[int, ...]
    relation: Relation
    design: Design
    levels_before_rounding: int = 0
    gaussian_mu: float = 0.0
    _bounds: list[Guarantee] = field(init=False, repr=False, compare=False, default_factory=list[Guarantee])
    kind: ClassVar[str] = "sampled_gaussian"

    def __post_init__(self) -> None:
        probability = require_probability("sampling_probability", self.sampling_probability)
        noise = require_vector("noise", self.noise, low=WEAKEST_NOISE)
        counts = require_vector("counts", self.counts, low=1.0)
        require_design(self.design, self.relation)
        require_counted("noise", noise, counts)
        before = int(require_nonnegative("levels_before_rounding", self.levels_before_rounding, allow_infinity=False))
        mu = require_nonnegative("gaussian_mu", self.gaussian_mu, allow_infinity=False)
        freeze(self, sampling_probability=probability, levels_before_rounding=before, gaussian_mu=mu)
        freeze(self, noise=tuple(noise.tolist()), counts=tuple(int(count) for count in counts))

    def describe(self) -> str:
        """The recipe in words, and which noise levels were rounded down."""
        levels = f"{min(self.noise):.4g}" if len(self.noise) == 1 else f"{min(self.noise):.4g} to {max(self.noise):.4g}"
        rounded = f", {self.levels_before_rounding} levels rounded down to {len(self.noise)}" if self.levels_before_rounding else ""
        if not rounded and len(self.noise) > MOST_LEVELS:
            rounded = f", {len(self.noise)} levels rounded down to at most {MOST_LEVELS} for the loss distribution"
        batches = self.design.replace("_", " ")
        extra = f", and a {shown(self.gaussian_mu)}-GDP Gaussian" if self.gaussian_mu > 0.0 else ""
        steps = f"{sum(self.counts)} steps, noise {levels}{rounded}{extra}"
        return f"sampled Gaussian, {batches}, q = {self.sampling_probability:.4g}, {steps}"

    def renyi_curve(self) -> RDPCurve:
        """The Rényi bound of the composition at `ORDERS`, every noise level as it is, rounded up."""
        gaussian = np.array(ORDERS) * (0.5 * self.gaussian_mu * self.gaussian_mu) + 5e-324 if self.gaussian_mu > 0.0 else 0.0
        step_curve = partial(renyi_values, self.sampling_probability, relation=self.relation, design=self.design)
        return summed_curve(step_curve, self.noise, self.counts, gaussian)

    def _build(self) -> Guarantee:
        """All the bounds of the head: each holds, so the smallest counts."""
        probability = self.sampling_probability
        if probability == 0.0:
            return GDP(self.gaussian_mu)
        if probability == 1.0:
            return _unsampled(self.noise, self.counts, self.relation, self.gaussian_mu)
        losses = composed(sampled_factors(self))
        return Tightest((*draws_told(self), self.renyi_curve(), *losses))


def summed_curve(
    step_curve: Callable[[FloatArray], FloatArray], noise: Sequence[float], counts: Sequence[int], more: FloatArray | float = 0.0
) -> RDPCurve:
    """The curve of steps from `step_curve` (the divergences of a step at `ORDERS` for some noise levels, rounded up) and of `more`."""
    levels, steps = np.array(noise), np.array(counts, dtype=np.float64)
    values = np.zeros(len(ORDERS))
    with np.errstate(over="ignore"):
        for first in range(0, levels.size, _LEVELS_AT_ONCE):
            part = slice(first, first + _LEVELS_AT_ONCE)
            values += steps[part] @ step_curve(levels[part])
        values += more
    # A sum of n terms, all positive, is off by at most n roundings.
    return RDPCurve(ORDERS, tuple(raised(values, 1e-12 + 2.0 * _EPS * levels.size).tolist()))


def draws_told(mechanism: SampledGaussian) -> tuple[Guarantee, ...]:
    """Bounds against somebody who knows which batches hold the record, or how many; if none does, the outputs do not depend on it."""
    probability, noise, counts, mu = mechanism.sampling_probability, mechanism.noise, mechanism.counts, mechanism.gaussian_mu
    bounds: tuple[Guarantee, ...] = (_unsampled(noise, counts, mechanism.relation, mu),)
    if mu == 0.0:
        bounds = (*bounds, ApproxDP(0.0, ever(probability, sum(counts))))
    if min(noise) < _LITTLE_NOISE and sum(counts) <= _MOST_COUNTED:
        bounds = (*bounds, _counted(probability, min(noise), sum(counts), mechanism.relation, mu))
    return bounds


def ever(probability: float, steps: int) -> float:
    """The chance that what happens at each step with this probability ever does, rounded up."""
    return 1.0 if probability >= 1.0 else min(round_up(-math.expm1(steps * math.log1p(-probability)), 8.0 * _EPS), 1.0)


def _counted(probability: float, noise: float, steps: int, relation: Relation, gaussian_mu: float) -> GDPMixture:
    """Tell the adversary how many batches hold the record: Gaussian pairs, as many as a binomial law says, all at the least noise."""
    mean, room = (int(count) for count in count_above([steps * probability, 45.0 * math.sqrt(steps * probability) + 1000.0], steps))
    first, last = max(mean - room - 1, 0), min(mean + room, steps)
    # Each bin counts as its largest number; beyond `last` lies next to nothing, which counts as a record in every batch.
    counts = np.unique(np.append(np.arange(first, last, 1 + (last - first) // _MOST_COUNTS), (last, steps))).astype(np.float64)
    # As in `theorems.truncation`, the incomplete beta function is off by 1e-12. Tails that are raised only move weight to more batches.
    tails = np.clip(special.bdtrc(counts[:-1], steps, probability) * (1.0 + 1e-11), 5e-324, 1.0)
    weights = -np.diff(np.concatenate(([1.0], tails, [0.0]))) * (1.0 + 4.0 * _EPS)
    mus = above(distance(relation) * np.sqrt(counts) / noise, 4.0 * _EPS)
    return GDPMixture(tuple(above(np.hypot(mus, gaussian_mu), 2.0 * _EPS).tolist()), tuple(weights.tolist()))


def _unsampled(noise: tuple[float, ...], counts: tuple[int, ...], relation: Relation, gaussian_mu: float) -> GDP:
    """All steps as one Gaussian mechanism without credit for sampling, with what is composed with them."""
    with np.errstate(over="ignore"):
        mus = distance(relation) * np.sqrt(np.array(counts, dtype=np.float64)) / np.array(noise)
    return GDP(compose_gdp(mus if gaussian_mu == 0.0 else np.append(mus, gaussian_mu)))


def merged_levels(noise: FloatArray, counts: Sequence[int]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Levels that are used, each once: scaling can round two neighbouring levels to one number."""
    levels, which = np.unique(noise, return_inverse=True)
    # As Python's whole numbers: a composition may have more steps than 64 bits can count.
    totals = [0] * levels.size
    for index, count in zip(which.tolist(), counts, strict=True):
        totals[index] += int(count)
    used = [(level, total) for level, total in zip(levels.tolist(), totals, strict=True) if total > 0]
    return tuple(level for level, _ in used), tuple(total for _, total in used)


def sampled_gaussian(sampling_probability: float, noise_multipliers: ArrayLike, relation: Relation, design: Design) -> Guarantee:
    r"""The guarantee of T sampled Gaussian steps, all outputs released, from their noise multipliers.

    Equal levels are grouped. More than 20 000 distinct ones are rounded DOWN to at most as many, equally spaced in logarithm (less noise,
    so sound), and `describe()` says so. The privacy loss distribution, one bound of several, takes 128 at most. $q$ is each record's chance
    to enter a batch, or the share of the records in one; $z_t \ge 0$, shape (T,), the noise of the batch sum relative to one record's
    gradient bound.

    Returns:
        `SampledGaussian` in general; exactly the `GDP` of composition for q = 1; `GDP(0)` for q = 0; `NotPrivate` if q > 0 and some
        step has no noise.
    Reference: as for `SampledGaussian`.
    """
    probability = require_probability("sampling_probability", sampling_probability)
    noise, counts = np.unique(require_vector("noise_multipliers", noise_multipliers, low=0.0), return_counts=True)
    require_design(design, relation)
    if probability == 0.0:
        return GDP(0.0)
    if noise[0] < WEAKEST_NOISE:
        return NotPrivate()
    if probability == 1.0:
        return GDP(compose_gdp(distance(relation) / require_vector("noise_multipliers", noise_multipliers, low=0.0)))
    levels, steps = round_levels_down(noise, counts.astype(np.float64), _MOST_RENYI_LEVELS)
    return SampledGaussian(
        sampling_probability=probability,
        noise=tuple(levels.tolist()),
        counts=tuple(int(step) for step in steps),
        relation=relation,
        design=design,
        levels_before_rounding=noise.size if levels.size < noise.size else 0,
    )


def sampled_factors(mechanism: SampledGaussian) -> list[Factor] | None:
    r"""One factor a noise level, at most 128, and one for the Gaussian; None where a step's losses are too narrow or too wide for floating
    point. $q \in (0, 1)$. Reference: Doroshenko et al. 2022, arXiv:2207.04380.
    """
    probability, relation, design = mechanism.sampling_probability, mechanism.relation, mechanism.design
    factors = level_factors(lambda noise: (SampledStep(probability, noise, relation, design),), mechanism.noise, mechanism.counts)
    mu = mechanism.gaussian_mu
    return factors if factors is None or mu == 0.0 else [*factors, dominating_factor(GDP(max(mu, _SMALLEST_MU)), 1)]


def level_factors(step_at: Callable[[float], Sequence[SampledStep]], noise: Sequence[float], counts: Sequence[int]) -> list[Factor] | None:
    """As `sampled_factors`, of the steps that `step_at` makes of noise levels."""
    levels, steps = round_levels_down(np.array(noise), np.array(counts, dtype=np.float64), MOST_LEVELS)
    factors = list[Factor]()
    for level, count in zip(levels.tolist(), steps.tolist(), strict=True):
        step = step_at(level)
        deviation = math.sqrt(math.fsum(part.weight * _deviation(part) ** 2 for part in step))
        factors.append(Factor(width=partial(step_width, step), deviation=deviation, count=int(count), losses=partial(step_losses, step)))
    return factors if all(SMALLEST_LOSS < factor.width(USUAL_TAIL) < LARGEST_LOSS for factor in factors) else None


def composed(factors: list[Factor] | None) -> tuple[Guarantee, ...]:
    """The loss distribution of factors, if it can be had."""
    losses = None if factors is None else compose_losses(factors)
    return () if losses is None else (losses,)


def _deviation(step: SampledStep) -> float:
    """Standard deviation of one step's privacy loss: it chooses the discretisation, whose soundness does not depend on it."""
    probability, noise, relation, design, _ = step
    fixed_size = design == "without_replacement"
    spread = 0.5 * noise if fixed_size else noise
    points = np.linspace(-10.0 * spread - 1.0, 10.0 * spread + 1.0, 4001)
    with np.errstate(all="ignore"):
        loss = log_mixture(probability, (points - 0.5) / (spread * spread))
        if relation == "replace_one" and not fixed_size:
            loss = loss - log_mixture(probability, (-points - 0.5) / (spread * spread))
        density = (1.0 - probability) * np.exp(-0.5 * (points / spread) ** 2) + probability * np.exp(-0.5 * ((points - 1.0) / spread) ** 2)
        weights = density / density.sum()
        return math.sqrt(float(weights @ np.square(loss - float(weights @ loss))))
