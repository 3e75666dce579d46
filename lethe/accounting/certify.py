"""certify: try every theorem on a run, keep the smallest epsilon, and record why the others were not used; the same of a run's beginnings.

`lethe.certify`, the command line, reports, jobs and what training returns call it with a Run, or a training record, and a delta; planners
call its halves.
"""

import difflib
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lethe.calculus.guarantees import NotPrivate
from lethe.calculus.large_delta import delta_for
from lethe.calculus.rounding import as_bound
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import FRESH_NOISE, Finding, first_failure, not_fresh
from lethe.certificates.parts import OtherStatus, OtherTheorem
from lethe.certificates.records import Recorded, TrainingRecord
from lethe.documents.shortened import MOST_LINES, thinned
from lethe.errors import HypothesisError, InputError, LetheError, quoted
from lethe.errors.names import in_other_words
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.theorems.base import SOUND, Bound, Standing, Theorem
from lethe.theorems.registry import ALL, OURS
from lethe.theorems.truncation import require_room

_TIE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One theorem's answer on one run: its bound, or why it does not apply; of a seeded run also what it says of fresh noise."""

    theorem: Theorem
    findings: tuple[Finding, ...]
    bound: Bound | None
    standing: Standing
    reason: str
    with_fresh_noise: Bound | None = None

    @property
    def usable(self) -> bool:
        """Whether a certificate may rest on it."""
        return self.bound is not None and self.standing.usable


def evaluate_theorems(run: Run, theorems: Sequence[Theorem | str] = OURS) -> tuple[Verdict, ...]:
    """Every theorem's answer on `run`; the expensive half of `certify`, which no delta enters.

    A run whose batches all hold every record is judged as what it is, full batches, whatever its design is called.
    """
    if require_run(run, correlated=True).noise_multiplier is None:
        raise InputError(
            "noise_multiplier: null; this run has no noise yet.", remedy="set it, or let lethe.plan(run, epsilon=..., delta=...) find it."
        )
    if run.seeded:
        return tuple(_without_release(verdict) for verdict in evaluate_theorems(run.replace(seeded=False), theorems))
    run = run.in_full_batches()
    verdicts: list[Verdict] = []
    for theorem in _resolved_theorems(theorems):
        findings = theorem.examine(run)
        failure = first_failure(findings)
        bound = None if failure else theorem.bound(run, findings)
        standing = SOUND if failure else theorem.standing_on(run)
        reason = failure.detail if failure else ""
        verdicts.append(Verdict(theorem=theorem, findings=findings, bound=bound, standing=standing, reason=reason))
    return tuple(verdicts)


def _without_release(fresh: Verdict) -> Verdict:
    """What a theorem says of the same run where somebody chose the seed: nothing, if it applied at all."""
    if fresh.bound is None:
        return fresh
    return replace(fresh, findings=(*fresh.findings, not_fresh()), bound=Bound(guarantee=NotPrivate()), with_fresh_noise=fresh.bound)


def _resolved_theorems(theorems: Sequence[Theorem | str]) -> list[Theorem]:
    """The theorems themselves; names are looked up."""
    named = {theorem.name: theorem for theorem in ALL}
    resolved: list[Theorem] = []
    for name_or_theorem in theorems if isinstance(theorems, Sequence) and not isinstance(theorems, str) else [theorems]:
        theorem = named.get(name_or_theorem) if isinstance(name_or_theorem, str) else name_or_theorem
        if not isinstance(theorem, Theorem):
            close = difflib.get_close_matches(name_or_theorem if isinstance(name_or_theorem, str) else "", named, n=3, cutoff=0.4)
            raise InputError(
                f"theorems: got {quoted(name_or_theorem)}; it needs names of theorems, such as {', '.join(close or list(named)[:3])}.",
                remedy="`lethe compare` and docs/theorems.md list them all.",
            )
        if any(theorem.name == earlier.name for earlier in resolved):
            raise InputError(f"theorems: {theorem.name} is there twice; each name may stand for one theorem only.")
        resolved.append(theorem)
    return resolved


@in_other_words  # takes American spellings of arguments, and names what another library's argument is called here
def certify(run: Run | Recorded, delta: float, theorems: Sequence[Theorem | str] = OURS, *, allow_large_delta: bool = False) -> Certificate:
    """The smallest epsilon that can be proved of what `run` releases.

    Args:
        run: the training run, planned or recorded; or what training returned, or its `TrainingRecord`. Of those the certificate says
            what the code that trained enforced, and is sealed: signed, and bound to the weights. A run alone, which anybody can type,
            declares everything that cannot be computed from it, whatever it says of who enforces what.
        delta: in (0, 1), and below 1/records.
        theorems: those to try, themselves or by name; by default Lethe's own, which together no sound published bound beats.
            `registry.ALL` adds the published ones, for comparison. One that is refuted, one-sided or has a gap in its proof is computed
            and never chosen.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
    Returns:
        A certificate: the theorem with the smallest epsilon of all that apply, its hypotheses, and every other theorem with its epsilon
        or the reason against it. An infinite epsilon is a possible answer: it says that the run is not private. So it is of every seeded
        run, with the epsilon that fresh noise would have given in the finding "fresh noise".
    Raises:
        InputError: delta is out of range, or not above what a cap on batches costs, or the run has no noise yet; or there is no key to
            sign with.
        HypothesisError: none of `theorems` applies; composition always does.

    Examples:
        >>> run = lethe.Run(
        ...     records=1000, batches=lethe.batches.Cyclic(100), passes=5, step_size=0.1, clip_norm=1.0, noise_multiplier=4.0,
        ...     release="all")
        >>> certificate = lethe.certify(run, delta=1e-5)
        >>> certificate.theorem, round(certificate.epsilon, 2)
        ('composition', 2.26)
    """
    if not isinstance(run, Run) and isinstance(run, Recorded) and isinstance(run.record, TrainingRecord):
        return certify(run.record.run, delta, theorems, allow_large_delta=allow_large_delta).sealed(run.record)
    run = require_run(run, correlated=True)
    delta = delta_for(run.records, delta, allow_large_delta=allow_large_delta)
    return certificate_of(run, delta, evaluate_theorems(run, theorems))


def certificate_of(run: Run, delta: float, verdicts: Sequence[Verdict]) -> Certificate:
    """The certificate that these verdicts on `run` allow."""
    # A number that cannot be an epsilon, whoever computed it, proves nothing.
    epsilons = {verdict.theorem.name: as_bound(verdict.bound.guarantee.epsilon(delta)) for verdict in verdicts if verdict.bound is not None}
    # Of a seeded run nothing is proved: the theorem that is named is the one that fresh noise would have been certified by.
    fresh = [(verdict.theorem.name, verdict.with_fresh_noise) for verdict in verdicts if verdict.with_fresh_noise is not None]
    ranks = epsilons | {name: as_bound(bound.guarantee.epsilon(delta)) for name, bound in fresh}
    usable = [verdict for verdict in verdicts if verdict.usable]
    if all(ranks[verdict.theorem.name] == math.inf for verdict in usable):
        require_room(run, delta)
    if not usable:
        raise HypothesisError(
            f"no theorem that was tried can certify run {run.run_id}: {reasons_of(verdicts)}",
            source="the theorems given",
            remedy="try them all: composition applies to independent noise that was fixed in advance, correlated-noise to correlated.",
        )
    # The first of the smallest; one of Lethe's own where a published formula differs by its roundings only.
    best = min(usable, key=lambda verdict: ranks[verdict.theorem.name])
    ours = min((verdict for verdict in usable if verdict.theorem in OURS), key=lambda verdict: ranks[verdict.theorem.name], default=best)
    if ranks[ours.theorem.name] <= ranks[best.theorem.name] * (1 + _TIE):
        best = ours
    assert best.bound is not None
    name, findings = best.theorem.name, best.findings
    if best.with_fresh_noise is not None:
        hypothetical = not_fresh(f"with fresh noise: epsilon = {shown(ranks[name])} by {name}")
        findings = tuple(hypothetical if finding.name == FRESH_NOISE else finding for finding in findings)
    alternatives = (
        _alternative(verdict, epsilons.get(verdict.theorem.name), epsilons[name]) for verdict in verdicts if verdict is not best
    )
    return Certificate(
        run=run,
        delta=delta,
        epsilon=epsilons[name],
        theorem=name,
        guarantee=best.bound.guarantee,
        lipschitz=best.bound.lipschitz,
        findings=findings,
        others=tuple(alternatives),
        citations=best.theorem.citations,
        under_replace_one=_under_replace_one,
    )


def _under_replace_one(run: Run, delta: float) -> float | None:
    """The epsilon of the same run where another record takes the place of one; None where nothing is proved of it."""
    with suppress(LetheError):
        replacing = run.replace(neighbours="replace_one")
        epsilon = certificate_of(replacing, delta, evaluate_theorems(replacing)).epsilon
        return epsilon if epsilon < math.inf else None
    return None


def reasons_of(verdicts: Sequence[Verdict]) -> str:
    """Why none of Lethe's own theorems, or else of those tried, is usable, in a sentence: each reason once, with the theorems."""
    reasons: dict[str, list[str]] = {}
    for verdict in [verdict for verdict in verdicts if verdict.theorem in OURS] or verdicts:
        reasons.setdefault(verdict.reason or verdict.standing.why, []).append(verdict.theorem.name)
    return "; ".join(f"{reason} ({', '.join(names)})" for reason, names in reasons.items()) + "."


def _alternative(verdict: Verdict, epsilon: float | None, best: float) -> OtherTheorem:
    status: OtherStatus = "looser"
    why = "applies, and says the same"
    if epsilon is None:
        status, why = "refused", verdict.reason
    elif verdict.standing.soundness != "sound":
        status, why = verdict.standing.soundness, verdict.standing.why
    elif epsilon > best or epsilon == math.inf:
        why = "applies, but looser" if epsilon < math.inf else "applies, but gives no bound"
    return OtherTheorem(theorem=verdict.theorem.name, status=status, epsilon=epsilon, why=why)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cumulative:
    """Epsilons at a delta, had the run stopped after some of its steps, ascending."""

    delta: float
    steps: tuple[int, ...]
    every_iterate: tuple[float, ...]  # epsilon of all iterates up to there
    last_iterate: tuple[float, ...]  # of that iterate alone; inf where some touch has no noise after it yet

    def __repr__(self) -> str:
        return f"Cumulative({len(self.steps)} places up to step {self.steps[-1]}, delta {self.delta:g})"

    def __str__(self) -> str:
        """Epsilon of all iterates, and of the last one where that is another, after some of the steps."""
        both = self.every_iterate != self.last_iterate
        rows = [f"{'steps':>10}  every iterate{'  last iterate' if both else ''}"]
        for index in thinned(len(self.steps), MOST_LINES - 1):
            every, last = shown(self.every_iterate[index]), shown(self.last_iterate[index])
            rows.append(f"{self.steps[index]:>10}  {every:>13}{f'  {last:>12}' if both else ''}")
        return "\n".join(rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinity is the text "inf"."""
        columns = [["inf" if value == float("inf") else value for value in values] for values in (self.every_iterate, self.last_iterate)]
        return {"delta": self.delta, "steps": list(self.steps), "every_iterate": columns[0], "last_iterate": columns[1]}


@in_other_words  # takes American spellings of arguments, and names what another library's argument is called here
def cumulative_privacy(
    run: Run,
    delta: float,
    *,
    points: int = 24,
    allow_large_delta: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Cumulative:
    """Epsilon of the run's beginning, for some of its steps (whole passes, where noise is at pass ends), the last one among them.

    Args:
        run: with its noise; fixed in advance.
        delta: in (0, 1), and below 1/records.
        points: at how many steps, at least 2.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
        progress: told (steps done, steps in all).
    Raises:
        InputError: an argument out of range, or a run without noise, with noise that was chosen along the way, or with noise correlated
            by a matrix, which is one for all its steps.
    """
    delta = delta_for(require_run(run, correlated=True).records, delta, allow_large_delta=allow_large_delta)
    if run.noise_budget is not None:
        raise InputError(
            "noise_budget: what was spent at a step of a run with a budget filter says nothing of its beginning alone.",
            remedy="use lethe.calculus.filters.Odometer.",
        )
    unit = run.steps_per_pass if run.noise_at == "pass_ends" else 1
    most_points = -(-run.total_steps // unit)
    counts = np.unique(np.linspace(1, most_points, min(max(2, points), most_points)).round().astype(np.int64))
    steps = [min(int(count) * unit, run.total_steps) for count in counts]
    every, last = list[float](), list[float]()
    for count in steps:  # of as many records each, for which the delta has been looked at
        beginning = stopped(run, count)
        every.append(certify(beginning.replace(release="all"), delta, allow_large_delta=True).epsilon)
        last.append(certify(beginning.replace(release="last"), delta, allow_large_delta=True).epsilon)
        if progress is not None:
            progress(len(every), len(steps))
    return Cumulative(delta=delta, steps=tuple(steps), every_iterate=tuple(every), last_iterate=tuple(last))


def stopped(run: Run, steps: int) -> Run:
    """The run's first `steps` steps, with the noise and the step sizes they have in the whole run."""
    if run.noise is not None:  # of one noise multiplier at every step
        return run.replace(steps=steps, step_size=run.step_sizes[:steps].tolist())
    entries = int(np.searchsorted(run.noisy_steps, steps))
    noise = run.noise_multipliers[run.noisy_steps][:entries]
    if run.noise_at == "pass_ends" and run.noisy_steps[entries - 1] != steps - 1:
        raise InputError(f"steps: got {steps}; this run has noise at pass ends only, and can be taken to stop there.")
    return run.replace(steps=steps, step_size=run.step_sizes[:steps].tolist(), noise_multiplier=noise.tolist())
