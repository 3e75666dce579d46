r"""A guarantee for a training with random batches of which only the last model is released.

Composition adds up the cost of every step. Where only the last model is seen, the last w steps, a window, are enough: their noise hides
whether a record was drawn in them, and also how far apart two runs on neighbouring data had come before them. What that distance costs is
`shift_mus`, one number a window. So early steps cost less the longer ago they are, and a long training has a smaller epsilon.

The theorem in `theorems/windowed.py` computes the distances of a run and builds this guarantee. Of each noise in the window a share
$\beta$ hides the draw and the rest the distance. Every window and every share is a bound by itself, so the smallest counts. The base class
`Built` calls `_build` once, when an epsilon is first asked for.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from lethe.calculus.domains import FloatArray, outside, require_probability, require_vector
from lethe.calculus.guarantees import Guarantee, RDPCurve, Tightest, freeze
from lethe.calculus.rounding import raised
from lethe.calculus.sampled.gaussian import Built, SampledGaussian, merged_levels
from lethe.calculus.sampled.renyi import ORDERS, WEAKEST_NOISE, Design, Relation, renyi_values, require_design
from lethe.calculus.upward_formatting import shown

# Shares of the noise variance that hide the draw: even in the logit, because the best share may lie close to 0 or to 1.
# The whole noise serves a window that hides no shift.
_SHARES = (*(1.0 / (1.0 + np.exp(-np.linspace(-4.0, 7.0, 34)))).tolist(), 1.0)
# The windows and shares with the smallest epsilon at these deltas are also computed through privacy loss distributions.
_REFINED_AT = (1e-7, 1e-14)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedGaussian(Built):
    r"""The best of several windows, each a composition of sampled Gaussian steps with one Gaussian mechanism.

    $$\epsilon(\alpha) = \min_{w,\,\beta} \sum_{i} n_{w,i}\, S_\alpha(q, \sqrt\beta z_i) + \frac{\alpha \mu_w^2}{2(1-\beta)}$$

    with $S_\alpha$ the Rényi divergence of one sampled Gaussian step, larger direction; where it pays, the same composition through privacy
    loss distributions in both directions. A window with $\mu_w = 0$ takes the whole noise ($\beta = 1$). $q \in (0, 1]$. `noise` has
    distinct noise multipliers $z_i > 0$ relative to one record's gradient bound, shape (K,); `counts` $n_{w,i}$, how many steps of window w
    have noise i, shape (W, K), at least one step in every window; `shift_mus` $\mu_w \ge 0$, what hiding the shift would cost with the
    whole noise of the window, shape (W,). Reference: docs/theory.md, "Random batches"; for convex losses Altschuler & Talwar 2022,
    arXiv:2205.13710.
    """

    sampling_probability: float
    noise: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    shift_mus: tuple[float, ...]
    relation: Relation
    design: Design
    _bounds: list[Guarantee] = field(init=False, repr=False, compare=False, default_factory=list[Guarantee])
    kind: ClassVar[str] = "windowed_gaussian"

    def __post_init__(self) -> None:
        noise = require_vector("noise", self.noise, low=0.0, strict=True)
        mus = require_vector("shift_mus", self.shift_mus, low=0.0, allow_infinity=True)
        rows = [require_vector("counts", row, low=0.0) for row in self.counts]
        require_design(self.design, self.relation)
        if len(rows) != mus.size or any(row.shape != noise.shape or row.sum() < 1 or np.any(row != np.floor(row)) for row in rows):
            raise outside("counts", self.counts, f"whole numbers of shape ({mus.size}, {noise.size}), with a step in each of the windows")
        probability = require_probability("sampling_probability", self.sampling_probability)
        if probability == 0.0:
            raise outside("sampling_probability", probability, "a number in (0, 1]")
        freeze(self, sampling_probability=probability, noise=tuple(noise.tolist()), shift_mus=tuple(mus.tolist()))
        freeze(self, counts=tuple(tuple(int(count) for count in row) for row in rows))

    def describe(self) -> str:
        """How many windows, and their lengths."""
        lengths = [sum(row) for row in self.counts]
        levels = shown(min(self.noise)) if len(self.noise) == 1 else f"{shown(min(self.noise))} to {shown(max(self.noise))}"
        spread = f"{len(lengths)} windows of {min(lengths)} to {max(lengths)} steps" if len(lengths) > 1 else f"{lengths[0]} steps"
        design = f"{self.design.replace('_', ' ')}, q = {self.sampling_probability:.4g}"
        return f"sampled Gaussian over the best of {spread}, {design}, noise {levels}"

    def renyi_curve(self) -> RDPCurve:
        """At every order the smallest of all windows and shares, rounded up."""
        return self._curve(self._totals())

    def _build(self) -> Guarantee:
        """The Rényi curve, and the loss distributions of the most promising windows: all are bounds, so the smallest counts."""
        totals = self._totals()
        composed = [self._composed(share, window) for share, window in self._worth_refining(totals)]
        return Tightest((self._curve(totals), *composed))

    def _totals(self) -> FloatArray:
        """The Rényi bound of every share and window, shape (shares, windows, orders)."""
        shares, noise, counts = np.array(_SHARES), np.array(self.noise), np.array(self.counts, dtype=np.float64)
        levels = np.multiply.outer(np.sqrt(shares), noise).ravel()
        steps = renyi_values(self.sampling_probability, levels, self.relation, self.design).reshape(shares.size, noise.size, len(ORDERS))
        endless = ~np.isfinite(steps)
        with np.errstate(over="ignore"):
            totals = counts @ np.where(endless, 0.0, steps)
            totals[(counts @ endless) > 0] = np.inf
            return totals + 0.5 * np.multiply.outer(self._costs(), np.array(ORDERS))

    def _costs(self) -> FloatArray:
        r"""$\mu_w^2/(1-\beta)$, shape (shares, windows)."""
        mus = np.array(self.shift_mus)
        with np.errstate(over="ignore", divide="ignore"):
            squares = np.maximum(mus * mus, 1e-300)  # a square that underflowed is not none
            return np.where(mus == 0.0, 0.0, squares / (1.0 - np.array(_SHARES)[:, None]))

    def _curve(self, totals: FloatArray) -> RDPCurve:
        """At every order the smallest total, rounded up."""
        # Sums of at most as many terms as there are noise levels.
        return RDPCurve(ORDERS, tuple(raised(totals.min(axis=(0, 1)), 1e-15 * (len(self.noise) + 8)).tolist()))

    def _worth_refining(self, totals: FloatArray) -> list[tuple[float, int]]:
        """(share, window) pairs worth a privacy loss distribution, which is tighter and slower; any pair is sound."""
        orders = np.array(ORDERS)
        epsilons = [totals + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0) for delta in _REFINED_AT]
        settings = list[tuple[float, int]]()
        for values in (self._spreads(), *(bounds.min(axis=2) for bounds in epsilons)):
            share, window = (int(index) for index in np.unravel_index(int(np.argmin(values)), values.shape))
            # A window that hides no shift is composition over all its steps, which is a theorem of its own.
            useful = math.isfinite(float(values.min())) and math.sqrt(_SHARES[share]) * min(self.noise) >= WEAKEST_NOISE
            if useful and self.shift_mus[window] > 0.0 and (_SHARES[share], window) not in settings:
                settings.append((_SHARES[share], window))
        return settings

    def _spreads(self) -> FloatArray:
        """How far apart the two laws are by the central limit theorem, shape (shares, windows): an estimate, for choosing only."""
        replaced = self.relation == "replace_one"
        with np.errstate(over="ignore", divide="ignore"):
            exponents = 1.0 / np.multiply.outer(np.array(_SHARES), np.square(np.array(self.noise)))
            if self.design == "without_replacement":
                growth = np.exp(exponents)  # q^2 u (u - 1)(u^2 + u - 1): infinities do not meet
                spreads = np.expm1(4.0 * exponents) if replaced else growth * np.expm1(exponents) * (growth * growth + growth - 1.0)
            else:
                spreads = 4.0 * np.sinh(exponents) if replaced else np.expm1(exponents)
            steps = np.minimum(self.sampling_probability**2 * spreads, 1e300) @ np.array(self.counts, dtype=np.float64).T
            return steps + self._costs()

    def _composed(self, share: float, window: int) -> Guarantee:
        """The same composition by privacy loss distributions: sampled steps in a share of the noise, and the shift."""
        noise, counts = merged_levels(math.sqrt(share) * np.array(self.noise), self.counts[window])
        return SampledGaussian(
            sampling_probability=self.sampling_probability,
            noise=noise,
            counts=counts,
            relation=self.relation,
            design=self.design,
            gaussian_mu=self.shift_mus[window] / math.sqrt(1.0 - share),
        )
