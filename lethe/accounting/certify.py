"""certify: try every theorem on a run, keep the smallest epsilon, record why not the rest."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lethe.calculus.guarantees import NotPrivate
from lethe.calculus.large_delta import delta_for
from lethe.calculus.rounding import as_bound
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import FRESH_NOISE, Finding, first_failure, not_fresh
from lethe.certificates.parts import Other, OtherStatus
from lethe.certificates.records import Recorded, TrainingRecord
from lethe.errors import HypothesisError, InputError, LetheError, quoted
from lethe.errors.names import in_other_words
from lethe.run import known_fields
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
    def fresh(self) -> Bound | None:
        """The bound for fresh noise, also of a seeded run, for which it is not proved."""
        return self.bound if self.with_fresh_noise is None else self.with_fresh_noise

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
    for theorem in _known(theorems):
        findings = theorem.examine(run)
        failure = first_failure(findings)
        bound = None if failure else theorem.bound(run, findings)
        standing = SOUND if failure else theorem.standing_on(run)
        verdicts.append(
            Verdict(theorem=theorem, findings=findings, bound=bound, standing=standing, reason=failure.detail if failure else "")
        )
    return tuple(verdicts)


def _without_release(fresh: Verdict) -> Verdict:
    """What a theorem says of the same run where somebody chose the seed: nothing, if it applied at all."""
    if fresh.bound is None:
        return fresh
    return replace(fresh, findings=(*fresh.findings, not_fresh()), bound=Bound(guarantee=NotPrivate()), with_fresh_noise=fresh.bound)


def _known(theorems: Sequence[Theorem | str]) -> list[Theorem]:
    """The theorems themselves; names are looked up."""
    named = {theorem.name: theorem for theorem in ALL}
    given: list[object] = list(theorems) if isinstance(theorems, Sequence) and not isinstance(theorems, str) else [theorems]
    found: list[Theorem] = []
    for one in given:
        theorem = named.get(one) if isinstance(one, str) else one
        if not isinstance(theorem, Theorem):
            close = difflib.get_close_matches(one if isinstance(one, str) else "", named, n=3, cutoff=0.4)
            raise InputError(
                f"theorems: got {quoted(one)}; it needs names of theorems, such as {', '.join(close or list(named)[:3])}.",
                remedy="`lethe compare` and docs/theorems.md list them all.",
            )
        if any(theorem.name == other.name for other in found):
            raise InputError(f"theorems: {theorem.name} is there twice; each name may stand for one theorem only.")
        found.append(theorem)
    return found


def require_run(run: object, *, correlated: bool = False) -> Run:
    """`run` itself, or InputError, if it is a Run all of whose words are known; `correlated`: correlated noise is known to who asks."""
    remedy = "build one with lethe.Run(...) or lethe.Run.load(path); certify also takes what training returned, or engine.record()."
    return known_fields.require_run(run, remedy=remedy, correlated=correlated)


@in_other_words
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
    own = min((verdict for verdict in usable if verdict.theorem in OURS), key=lambda verdict: ranks[verdict.theorem.name], default=best)
    if ranks[own.theorem.name] <= ranks[best.theorem.name] * (1 + _TIE):
        best = own
    assert best.bound is not None
    others = tuple(
        _other(verdict, epsilons.get(verdict.theorem.name), epsilons[best.theorem.name]) for verdict in verdicts if verdict is not best
    )
    return Certificate(
        run=run,
        delta=delta,
        epsilon=epsilons[best.theorem.name],
        theorem=best.theorem.name,
        guarantee=best.bound.guarantee,
        lipschitz=best.bound.lipschitz,
        findings=_with_epsilon(best, ranks[best.theorem.name]),
        others=others,
        citations=best.theorem.citations,
        under_replace_one=_under_replace_one,
    )


def _under_replace_one(run: Run, delta: float) -> float | None:
    """The epsilon of the same run where another record takes the place of one; None where nothing is proved of it."""
    try:
        replacing = run.replace(neighbours="replace_one")
        epsilon = certificate_of(replacing, delta, evaluate_theorems(replacing)).epsilon
    except LetheError:
        return None
    return epsilon if epsilon < math.inf else None


def reasons_of(verdicts: Sequence[Verdict]) -> str:
    """Why none of Lethe's own theorems, or else of those tried, is usable, in a sentence: each reason once, with the theorems."""
    reasons: dict[str, list[str]] = {}
    for verdict in [verdict for verdict in verdicts if verdict.theorem in OURS] or verdicts:
        reasons.setdefault(verdict.reason or verdict.standing.why, []).append(verdict.theorem.name)
    return "; ".join(f"{reason} ({', '.join(names)})" for reason, names in reasons.items()) + "."


def _with_epsilon(verdict: Verdict, epsilon: float) -> tuple[Finding, ...]:
    """Its findings; of a seeded run with the epsilon that would hold had the noise been fresh."""
    if verdict.with_fresh_noise is None:
        return verdict.findings
    said = not_fresh(f"with fresh noise: epsilon = {shown(epsilon)} by {verdict.theorem.name}")
    return tuple(said if finding.name == FRESH_NOISE else finding for finding in verdict.findings)


def _other(verdict: Verdict, epsilon: float | None, best: float) -> Other:
    status: OtherStatus = "looser"
    if epsilon is None:
        status, why = "refused", verdict.reason
    elif verdict.standing.soundness != "sound":
        status, why = verdict.standing.soundness, verdict.standing.why
    elif epsilon == float("inf"):
        why = "applies, but gives no bound"
    else:
        why = "applies, but looser" if epsilon > best else "applies, and says the same"
    return Other(theorem=verdict.theorem.name, status=status, epsilon=epsilon, why=why)
