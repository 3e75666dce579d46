r"""Poisson batches of which those that hold too many records are cut to K of them, chosen uniformly: what one step reveals, composed.

`theorems.sampling` uses it for the design `poisson` with `truncate_at`: a cut batch leaves records out, and this counts that within the
divergence in place of adding to $\delta$.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from lethe.calculus.domains import FloatArray, outside, require_probability
from lethe.calculus.guarantees import Guarantee, RDPCurve, Tightest, WithSlack, freeze
from lethe.calculus.privacy_losses.distributions import Factor
from lethe.calculus.rounding import above
from lethe.calculus.sampled.gaussian import Built, SampledGaussian, composed, draws_told, ever, level_factors, summed_curve
from lethe.calculus.sampled.profiles import SampledStep
from lethe.calculus.sampled.renyi import ORDERS, renyi_values
from lethe.calculus.upward_formatting import shown

_EPS = float(np.finfo(np.float64).eps)
# Where the others fill a batch more often than this, the bound that counts each such run as a failure is not asked.
_MOST_SLACK = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedPoisson(Built):
    r"""The composition of sampled Gaussian steps on Poisson batches, each cut to K of its records, chosen uniformly, if it holds more.

    With $h(\epsilon)$ for the profile of a step without a cut, p for the chance that the other records alone fill a batch and r for the
    chance that the record is in such a batch, one step has the profile

    $$\delta(\epsilon) = (1-p)\,h(\epsilon) + p\,h_r(\epsilon),$$

    $h_r$ that of a batch of fixed size that holds the record with probability r (`zero_out`, `replace_one`), or of the pair
    $(1-r)N(0, z^2) + rN(2, z^2)$ and $N(0, z^2)$, each direction by itself (`add_or_remove`).

    Formal guarantee: as of `SampledGaussian`, of each step given all before it, and every record's part has norm at most the bound that
    noise is relative to. The bound falls when p grows and pr does not, and grows with r.

    `steps` are Poisson steps without a cut, $q \in (0, 1)$, and no Gaussian beside them; `full` is p, in (0, 1], at most the true chance;
    `kept` is r, in (0, 1), and pr at least the true chance. Proof: docs/theory.md, Theorem 7d.
    """

    steps: SampledGaussian
    full: float
    kept: float
    _bounds: list[Guarantee] = field(init=False, repr=False, compare=False, default_factory=list[Guarantee])
    kind: ClassVar[str] = "truncated_poisson"

    def __post_init__(self) -> None:
        steps = self.steps
        poisson = isinstance(steps, SampledGaussian) and steps.design == "poisson" and steps.gaussian_mu == 0.0  # pyright: ignore[reportUnnecessaryIsInstance]
        if not poisson or not 0.0 < steps.sampling_probability < 1.0:
            raise outside("steps", steps, "a SampledGaussian of Poisson batches with q in (0, 1), without a Gaussian beside it")
        full, kept_share = require_probability("full", self.full), require_probability("kept", self.kept)
        if not (full > 0.0 and 0.0 < kept_share < 1.0):
            raise outside("full and kept", (full, kept_share), "chances above 0, and kept below 1")
        freeze(self, full=full, kept=kept_share)

    def describe(self) -> str:
        """The recipe in words."""
        return f"{self.steps.describe()}, cut where the others fill a batch, with chance {shown(self.full)}"

    def renyi_curve(self) -> RDPCurve:
        """The Rényi bound of the composition, rounded up: a moment is 1 and an integral of the profiles of both directions."""
        return summed_curve(self._divergences, self.steps.noise, self.steps.counts)

    def factors(self) -> list[Factor] | None:
        """As `lethe.calculus.sampled.gaussian.sampled_factors`."""
        return level_factors(self._step, self.steps.noise, self.steps.counts)

    def _step(self, noise: float) -> Sequence[SampledStep]:
        """What one step is with each chance: its batch filled by others, and so cut, or not."""
        steps, p, r = self.steps, self.full, self.kept
        if steps.relation == "add_or_remove":
            cut = SampledStep(r, 0.5 * noise, steps.relation, "poisson", p)
        else:
            cut = SampledStep(r, noise, steps.relation, "without_replacement", p)
        return (cut,) if p == 1.0 else (SampledStep(steps.sampling_probability, noise, steps.relation, "poisson", 1.0 - p), cut)

    def _divergences(self, noise: FloatArray) -> FloatArray:
        """Rényi divergences of one step, shape (levels, orders)."""
        moments = [
            (math.log(weight), (np.array(ORDERS) - 1.0) * renyi_values(probability, noise * unit, relation, design))
            for probability, unit, relation, design, weight in self._step(1.0)
        ]
        with np.errstate(over="ignore", invalid="ignore"):
            logs = np.logaddexp.reduce([weight + moment for weight, moment in moments])
            rounding = 8.0 * _EPS * sum(1.0 - weight + moment for weight, moment in moments)
            return above((logs + rounding) / (np.array(ORDERS) - 1.0), 4.0 * _EPS)

    def _build(self) -> Guarantee:
        steps, count = self.steps, sum(self.steps.counts)
        # A record that is there or not can stand in the place of another one.
        relation = "replace_one" if steps.relation == "add_or_remove" else steps.relation
        accountants = draws_told(replace(steps, sampling_probability=max(steps.sampling_probability, self.kept), relation=relation))
        slack = ever(self.full, count)
        uncut = (WithSlack(steps, slack),) if slack < _MOST_SLACK else ()
        return Tightest((*uncut, *accountants, self.renyi_curve(), *composed(self.factors())))
