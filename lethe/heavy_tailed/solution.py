r"""What a solver returns: parameters, and phase by phase what they cost in privacy. Every solver ends with a `Solution`;
lethe/accounting/heavy_tailed.py certifies its phases. A phase uses one range of records, each record in the same number of steps. $\mu$ is
the parameter of Gaussian differential privacy, s a sensitivity, $\sigma$ a standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import ClassVar, cast

import numpy as np

from lethe.calculus.composition import compose_gdp
from lethe.calculus.filters import gaussian_cost
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, NotPrivate
from lethe.calculus.rounding import above, round_up
from lethe.errors import InputError, LetheError
from lethe.heavy_tailed.sets import Array
from lethe.run.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The privacy cost of one noisy mean of a batch for a record in it that is replaced."""

    guarantee: Guarantee
    sensitivity: float | None  # how far it moves what noise is added to, loss per parameter; None where the noise is not Gaussian
    noise_std: float  # in each coordinate, same unit


def gaussian_release(sensitivity: float, noise_std: float) -> Release:
    r"""A Gaussian mechanism: $(s/\sigma)$-GDP, rounded up; not private without noise."""
    if not noise_std > 0.0:
        return Release(guarantee=NotPrivate(), sensitivity=sensitivity, noise_std=noise_std)
    # A ratio that underflows is above 0 all the same.
    guarantee = GDP(float(above(sensitivity / noise_std, 1e-15)) if sensitivity > 0.0 else 0.0)
    return Release(guarantee=guarantee, sensitivity=sensitivity, noise_std=noise_std)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Steps on one range of records, each record in the same number of them.

    Args:
        first, stop: the records `first`, ..., `stop` - 1.
        batch_size: records in each mean.
        steps: how many means were taken.
        touches: in how many of them one record takes part.
        release: what one of them reveals.
        clip_norm: in the oracle's own sense; None without clipping.
        whole: of all its means together, where that is not what single ones compose to: batches drawn in secret.
        seeded: whether its noise, or its secret batches, came from a generator of the caller: whoever has it knows them.
    """

    first: int
    stop: int
    batch_size: int
    steps: int
    touches: int
    release: Release
    clip_norm: float | None
    whole: Guarantee | None = None
    seeded: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all its means together; none for a seeded phase."""
        return NotPrivate() if self.seeded else self.with_fresh_noise

    @property
    def with_fresh_noise(self) -> Guarantee:
        """`guarantee` if the noise was drawn fresh: `whole`, or else Gaussian ones compose exactly and others add up."""
        return composed([self]) if self.whole is None else self.whole

    def moved(self, by: int) -> Phase:
        """This phase on the records `by` places further on."""
        return replace(self, first=self.first + by, stop=self.stop + by)

    @property
    def rho(self) -> float | None:
        """Its zCDP cost, rounded up; None where there is none to be had, infinity without noise, or with noise that somebody knows."""
        single = self.release
        if self.seeded or isinstance(single.guarantee, NotPrivate):
            return math.inf
        if self.whole is not None or not isinstance(single.guarantee, GDP) or single.sensitivity is None:
            return None
        return round_up(self.touches * gaussian_cost(single.noise_std / single.sensitivity), 1e-15)


_OF_ITS_PHASES = cast(Guarantee, None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Solution:
    r"""Where a solver ended, and how private the whole way there is.

    Formal guarantee: replace one record, n public; everything the solver computed from its noisy means is covered, all iterates included.
    Phases on disjoint records do not add up: given what was released before, only the phases that hold the record depend on it.
    Not covered: floating-point rounding of means and noise, timing, and constants that were fitted to the same data.

    Args:
        parameters: shape (d,), read-only.
        phases: in the order they ran.
        guarantee: None: the composition of the phases.
        method: which solver.
        diagnostics: public facts of the run: counts and settings, nothing measured on the records.
        run: the last phase as a `lethe.Run` that releases its last iterate, of a loss of which nothing is known; None where it is not one
            noisy recursion, or each record is touched once, so that a record of the last batch is hidden by its own noise alone.
        seeded: whether the solver drew its noise from a caller's generator, so that somebody knows it, or a phase did. The `guarantee` is
            then kept as `with_fresh_noise`, the guarantee is none, and phases and run are seeded as well.
        with_fresh_noise: what would hold had the noise been drawn fresh; None where it was.
    """

    parameters: Array
    phases: tuple[Phase, ...]
    guarantee: Guarantee = _OF_ITS_PHASES
    method: str
    diagnostics: Mapping[str, float]
    run: Run | None = None
    seeded: bool = False
    with_fresh_noise: Guarantee | None = None
    neighbours: ClassVar[str] = "replace_one"

    def __post_init__(self) -> None:
        parameters = self.parameters.copy()
        if not np.all(np.isfinite(parameters)):
            raise LetheError(
                "parameters: the run left the range of floating-point numbers.",
                source="the steps and the noise",
                remedy="take smaller steps, a smaller clip norm or a bounded domain",
            )
        parameters.flags.writeable = False
        if self.guarantee is None:  # pyright: ignore[reportUnnecessaryComparison]
            object.__setattr__(self, "guarantee", composed(self.phases))
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "diagnostics", MappingProxyType(dict(self.diagnostics)))
        if self.seeded or any(phase.seeded for phase in self.phases):
            if not isinstance(self.guarantee, NotPrivate):
                object.__setattr__(self, "with_fresh_noise", self.guarantee)
            object.__setattr__(self, "seeded", True)
            object.__setattr__(self, "guarantee", NotPrivate())
            object.__setattr__(self, "phases", tuple(replace(phase, seeded=True) for phase in self.phases))
            object.__setattr__(self, "run", None if self.run is None else self.run.replace(seeded=True))

    def __repr__(self) -> str:
        summary = f"{self.parameters.size} parameters, {len(self.phases)} phases, {self.guarantee.describe()}"
        return f"Solution({self.method}: {summary}{', seeded' if self.seeded else ''})"

    @property
    def fresh(self) -> Solution:
        """The solution with the guarantee that fresh noise would give, which a seeded one must not claim."""
        if not self.seeded:
            return self
        return replace(
            self,
            seeded=False,
            guarantee=self.guarantee if self.with_fresh_noise is None else self.with_fresh_noise,
            with_fresh_noise=None,
            phases=tuple(replace(phase, seeded=False) for phase in self.phases),
            run=None if self.run is None else self.run.replace(seeded=False),
        )

    @property
    def zcdp(self) -> ZCDP | None:
        r"""The guarantee as $\rho$-zCDP, $\rho = \mu^2/2$; None where it is not Gaussian."""
        if isinstance(self.guarantee, NotPrivate):
            return ZCDP(math.inf)
        return ZCDP(round_up(0.5 * self.guarantee.mu**2, 1e-15)) if isinstance(self.guarantee, GDP) else None


def composed(phases: Iterable[Phase]) -> Guarantee:
    r"""The guarantee of phases that may share records: for each record what its phases cost together, and the worst over records.

    Gaussian means: $\mu = \max_i\sqrt{\sum_{j \ni i} m_j\mu_j^2}$, $m_j$ the uses. $(\epsilon, \delta)$ ones: sums of both. Each mean
    may depend on all that was released before it. Where a phase says `whole`, all of them must be on disjoint records. All noise is taken
    to be fresh: a `Solution` takes the guarantee back where it was not.

    Raises:
        InputError: there is no phase, or phases that share records have guarantees of two kinds.
    """
    entries = list(phases)
    if any(phase.whole is not None for phase in entries):
        return parallel([phase.with_fresh_noise for phase in disjoint(entries)])
    ends = sorted({end for phase in entries for end in (phase.first, phase.stop)})
    shares = [[phase for phase in entries if phase.first <= first and stop <= phase.stop] for first, stop in pairwise(ends)]
    return parallel([_together(share) for share in shares if share])


def disjoint(phases: list[Phase]) -> list[Phase]:
    """The phases, if no two of them share records."""
    for before, after in pairwise(sorted(phases, key=lambda phase: phase.first)):
        if after.first < before.stop:
            raise InputError(
                f"phases on the records {before.first}..{before.stop - 1} and {after.first}..{after.stop - 1}; these need disjoint ones.",
                source="phases",
                remedy="run the second on other records",
            )
    return phases


def parallel(guarantees: Iterable[Guarantee]) -> Guarantee:
    r"""The joint guarantee of mechanisms on fixed disjoint parts of the records: a record is in one part, so the worst one counts.

    All Gaussian: the largest $\mu$. Else the largest $\epsilon$ at the largest $\delta$ of the $(\epsilon, \delta)$ ones.

    Raises:
        InputError: there is none, or one that is neither Gaussian nor $(\epsilon, \delta)$.
    """
    parts = list(guarantees)
    if any(isinstance(part, NotPrivate) for part in parts):
        return NotPrivate()
    if not parts or not all(isinstance(part, GDP | ApproxDP) for part in parts):
        raise InputError(f"guarantees of kind {sorted(part.kind for part in parts)}; they need to be gdp or approx_dp.", source="phases")
    points = [part for part in parts if isinstance(part, ApproxDP)]
    if not points:
        return GDP(max(part.mu for part in parts if isinstance(part, GDP)))
    delta = max(point.delta_bound for point in points)
    return ApproxDP(max(part.epsilon_bound if isinstance(part, ApproxDP) else part.epsilon(delta) for part in parts), delta)


def _together(phases: list[Phase]) -> Guarantee:
    """The joint guarantee of phases on the same records."""
    costs = [(phase.release.guarantee, phase.touches) for phase in phases]
    if any(isinstance(cost, NotPrivate) for cost, _ in costs):
        return NotPrivate()
    mus = [cost.mu if touches == 1 else round_up(cost.mu * math.sqrt(touches), 1e-15) for cost, touches in costs if isinstance(cost, GDP)]
    points = [(cost, touches) for cost, touches in costs if isinstance(cost, ApproxDP)]
    if len(mus) == len(costs):
        return GDP(compose_gdp(mus))
    if len(points) < len(costs):
        raise InputError(
            f"phases with guarantees {sorted({cost.kind for cost, _ in costs})}; those on the same records need to be of one kind, "
            "gdp or approx_dp.",
            source="phases",
        )
    if len(points) == 1 and points[0][1] == 1:
        return points[0][0]
    epsilon = round_up(math.fsum(point.epsilon_bound * touches for point, touches in points), 1e-15)
    delta = min(round_up(math.fsum(point.delta_bound * touches for point, touches in points), 1e-15), 1.0)
    return ApproxDP(epsilon, delta)
