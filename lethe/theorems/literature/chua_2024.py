"""Chua et al. 2024: adaptive batch linear queries, in a fixed order (exact) and in a shuffled order (from below).

The lower bound shows what a shuffled order cannot hide: it is no guarantee, is marked so, and no certificate can rest on it. Kept to
compare, as `lethe.compare` shows it; `certify` tries the fixed order only if asked by name.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from lethe.calculus.domains import FloatArray, require_nonnegative
from lethe.calculus.guarantees import GDP, Profile
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Covers, Standing, Theorem
from lethe.theorems.citations import cite

# What a lower bound is lowered by, far above the rounding of normal and binomial tails and of root finding.
_SLACK = 1e-9
# A probability below this is not trusted, and the event that has it is not used.
_SMALLEST = 1e-280
_THRESHOLDS, _REFINEMENTS, _MOST_COUNTS = 201, 2, 64
_CITATIONS = (
    cite("chua-2024"),
    cite("chua-2024-scalable"),
    cite("balle-wang-2018"),
)


def shuffled_delta(epsilon: float, noise: float, slots: int, passes: int, reshuffled: bool, used: float = 1.0) -> float:
    r"""A lower bound on $\delta(\epsilon)$ of shuffled batches, zero out, every iterate released, for the worst gradients of norm 1.

    All other records push by -1 at every step; the record pushes by +1, or by 0 when it is zeroed out. Relative to the sum without
    it, its batch is at 2 or at 1 and all others at 0, in units of one gradient bound. One order for all passes is one pass with noise
    $z/\sqrt E$. In a pass the event is that some sum exceeds C, and

    $$p_k(C) = 1 - \Phi\Big(\frac{C-k}{z}\Big)\Phi\Big(\frac Cz\Big)^{\ell-1}$$

    is its probability when the record's batch is at k, so $\delta(\epsilon) \ge \max_C\{p_2(C) - e^\epsilon p_1(C)\}$. With a fresh order
    every pass the event is that this happens in j passes or more, which is binomial:

    $$\delta(\epsilon) \ge \max_{C,j}\{P[\mathrm{Bin}(E, p_2) \ge j] - e^\epsilon P[\mathrm{Bin}(E, p_1) \ge j]\}$$

    Any C and j are valid; a grid is searched. $z > 0$ is the noise of the batch sum relative to one record's gradient bound; `used` is the
    share of the records that a pass uses: a record left over by the division moves no sum of that pass. Rounded down; 0 above an $\epsilon$
    of about 600, where nothing is claimed. Reference: Chua et al. 2024, arXiv:2403.17673 (one pass, one event); arXiv:2411.04205 for
    several passes. `used` and the binomial are derived here.
    """
    if epsilon > 640.0:
        return 0.0
    level, repeats = (noise, passes) if reshuffled else (noise / math.sqrt(passes), 1)
    counts = np.unique(np.geomspace(1, repeats, _MOST_COUNTS).round())
    # Below the low end the event is all but sure; above the high end either 2 against 1 is far past e^epsilon, or nothing is left of 2.
    low = min(0.0, 1.0 - 8.0 * level)
    high = 2.0 + min(8.0 * level + level * level * (epsilon + math.log(slots)), level * (38.0 + math.sqrt(2.0 * math.log(slots))))
    best = 0.0
    for _ in range(1 + _REFINEMENTS):
        thresholds = np.linspace(low, high, _THRESHOLDS)
        with_record, without = (_exceeds(thresholds, shift, level, slots, used) for shift in (2.0, 1.0))
        if repeats > 1:
            with_record, without = (special.bdtrc(counts - 1.0, repeats, chance[:, None]) for chance in (with_record, without))
        trusted = without > _SMALLEST
        cost = np.exp(np.minimum(epsilon + np.log(np.where(trusted, without, 1.0)), 1.0))
        gains = np.where(trusted, with_record * (1.0 - _SLACK) - cost * (1.0 + _SLACK), 0.0).reshape(_THRESHOLDS, -1).max(axis=1)
        index = int(gains.argmax())
        best = max(best, float(gains[index]))
        low, high = float(thresholds[max(index - 1, 0)]), float(thresholds[min(index + 1, _THRESHOLDS - 1)])
    return best


def _exceeds(thresholds: FloatArray, shift: float, noise: float, slots: int, used: float) -> FloatArray:
    """The chance that the largest of a pass's sums, one of them shifted unless the record is left over, exceeds each threshold."""
    log_below = special.log_ndtr(thresholds / noise)
    moved = -np.expm1(special.log_ndtr((thresholds - shift) / noise) + (slots - 1) * log_below)
    return used * moved + (1.0 - used) * -np.expm1(slots * log_below)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShuffledFromBelow(Profile):
    """The profile of `shuffled_delta`: what shuffled batches reveal at least, so no guarantee at all."""

    noise: float
    steps_per_pass: int
    passes: int
    reshuffled: bool
    used: float
    kind: ClassVar[str] = "shuffled_from_below"

    def delta(self, epsilon: float) -> float:
        """At least this."""
        level = require_nonnegative("epsilon", epsilon)
        return shuffled_delta(level, self.noise, self.steps_per_pass, self.passes, self.reshuffled, self.used)

    def describe(self) -> str:
        """Says what it is not."""
        order = "a fresh order each pass" if self.reshuffled else "one order"
        return f"a LOWER bound, no guarantee: {order} of {self.steps_per_pass} batches, {self.passes} passes, noise {shown(self.noise)}"


class Chua2024Fixed(Theorem):
    r"""Batches in a fixed public order (ABLQ with the deterministic sampler): the Gaussian mechanism, once a pass.

    $$\mu = \sqrt E\,s/\tau$$

    For zero out $s/\tau = 1/z$, the paper's $\mu = \sqrt E/z$; the proof only needs the sensitivity, so replace one is $2\sqrt E/z$. The
    worst record is in the first batch, which a last pass cut short still reaches.
    """

    name: ClassVar[str] = "chua-2024-fixed"
    statement: ClassVar[str] = "Batches in a fixed order are one Gaussian mechanism a pass; holds whatever is released."
    formula: ClassVar[str] = (
        r"\delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon\Phi(-\mu/2 - \epsilon/\mu),\ \mu = \sqrt E\,s/\tau"
    )
    needs: ClassVar[str] = "cyclic or full batches, one noise level"
    covers: ClassVar[Covers] = "all"
    citations: ClassVar[tuple[Citation, ...]] = _CITATIONS
    standing: ClassVar[Standing] = Standing(soundness="dominated", why="it is Gaussian composition over the passes")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.design(run, ("cyclic", "full"), "in one public order; the first batch is used most often"),
            require.gradient_bound(run),
            _one_noise_level(run),
        )

    def _bound(self, run: Run) -> Bound:
        passes = -(-run.total_steps // run.steps_per_pass)
        return Bound(guarantee=GDP(round_up(math.sqrt(passes) / float(run.relative_noise[0]), 1e-15)))


class Chua2024Shuffled(Theorem):
    r"""Batches in a secret shuffled order: how much they reveal at least (ABLQ with the shuffle sampler).

    $$\delta(\epsilon) \ge \max_C\{p_2(C) - e^\epsilon p_1(C)\},\qquad p_k(C) = 1 - \Phi((C-k)/z)\,\Phi(C/z)^{\ell-1}$$

    See `shuffled_delta`. It is about the worst losses with gradients up to the bound, not about this run's loss, and about all iterates:
    no accounting of the run that knows the gradient bound only may claim less.
    """

    name: ClassVar[str] = "chua-2024-shuffled"
    statement: ClassVar[str] = (
        "Shuffled batches reveal at least this for the worst losses when every iterate is released; not an upper bound."
    )
    formula: ClassVar[str] = r"\delta(\epsilon) \ge \max_C\{p_2(C) - e^\epsilon p_1(C)\},\ p_k(C) = 1 - \Phi((C-k)/z)\Phi(C/z)^{\ell-1}"
    needs: ClassVar[str] = "every iterate released, shuffled batches in whole passes, zero out, one noise level"
    covers: ClassVar[Covers] = "all"
    citations: ClassVar[tuple[Citation, ...]] = _CITATIONS
    standing: ClassVar[Standing] = Standing(soundness="lower-bound", why="it says what shuffled batches reveal at least, not at most")

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            _all_iterates(run),
            require.design(run, ("shuffled_once", "shuffled"), "disjoint, every record at most once a pass"),
            require.relation(run, ("zero_out",)),
            require.whole_passes(run),
            require.secrecy(run),
            require.each_gradient_bounded(run),
            _one_noise_level(run),
        )

    def _bound(self, run: Run) -> Bound:
        slots = run.steps_per_pass
        guarantee = _ShuffledFromBelow(
            noise=float(run.relative_noise[0]),
            steps_per_pass=slots,
            passes=run.total_steps // slots,
            reshuffled=not run.batches.repeats,
            used=slots * run.batch_size / run.records,
        )
        return Bound(guarantee=guarantee)


def _all_iterates(run: Run) -> Finding:
    """Stated for a run whose every iterate is released."""
    if run.release == "all":
        return holds("release", "every iterate is released", evidence="declared")
    return fails(
        "release",
        "it says what all iterates reveal at least; only the last is released, which may reveal less",
        source="release = last",
        remedy="compare it with a run whose release is all.",
    )


def _one_noise_level(run: Run) -> Finding:
    """The same noise at every step, and some."""
    # Steps may vary: every output is seen, so it can be divided by its step size.
    if run.noise_multipliers.min() == run.noise_multipliers.max() > 0:
        return holds("constant noise", "one noise level > 0, relative to the gradient bound, at every step")
    return fails(
        "constant noise",
        "it is stated for one noise level > 0 at every step; noise_multiplier changes or is 0",
        source="noise_multiplier",
        remedy="use composition, which takes any schedule.",
    )
