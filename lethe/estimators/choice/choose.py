"""Choosing the mechanism that trains a linear model, from public facts: the one the user named, or the one of least predicted risk.

Linear models have several mechanisms (objective or output perturbation, noisy moments, gradient descents); which adds least error depends
on sizes and budget. `PrivateLinearModel` calls `choose` once a fit with `PublicFacts`; as no record is looked at, the choice itself costs
no privacy.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors import CalibrationError, InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.mechanism import AnyRecords, MechanismPlan, Outcome, Penalties, RandomSources
from lethe.estimators.choice.perturbed import MinimiserMechanism, NoisyMoments
from lethe.estimators.choice.risk import risk
from lethe.estimators.choice.runs import RUNS, RunMechanism
from lethe.estimators.inputs.facts import PublicFacts

Mechanism = MinimiserMechanism | NoisyMoments | RunMechanism
# Simplest first, which counts where risks are equal.
MECHANISMS: tuple[Mechanism, ...] = (
    MinimiserMechanism("objective_perturbation"),
    NoisyMoments(),
    MinimiserMechanism("output_perturbation"),
    *RUNS,
)
NAMES = ("auto", "sgd", *(mechanism.name for mechanism in MECHANISMS))
_RUN_NAMES = frozenset(mechanism.name for mechanism in RUNS)
# Its loss is bounded on one side by a number, not by a normal law: a ledger would count several times its epsilon for it.
_DEAR = frozenset({"objective_perturbation"})
# Zeros are taken where no mechanism is expected to gain more than this share of their risk.
_LEAST_GAIN = 0.02
# Of risks this near one is favoured, since on generated data it was at least as good as what was predicted to be best: noise at pass ends
# for classes, and for a regression a tilted minimiser, whose noise is least where rows are long; a run cannot know where that is.
_CLASSES, _REGRESSION = ("pass_ends", 1.02), ("objective_perturbation", 3.0)
# Of other runs, whose noise the rule expects to be a little less than their certificates ask for in many batches.
_OTHER_RUNS = 1.2
# Where every iterate is certified, of risks this near: on generated data, breast cancer, wine and small pictures Poisson batches that were
# predicted to be better by up to a twentieth were as good as a fixed order, within noise, and a fixed order needs no secret draw.
_EVERY_ITERATE = ("correlated", 1.05)
# Of records in blocks a pass takes long: of risks this near to the least, the mechanism of fewest passes.
_IN_BLOCKS = 1.2
# Risks below this share of that of zero weights are all alike: no prediction is as sure as that.
_NOTHING_LEFT = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The mechanism that was chosen, and why."""

    plan: MechanismPlan  # the mechanism made ready
    others: tuple[tuple[str, float | str], ...]  # every other with its predicted risk, or the reason against it
    why: str  # a sentence

    def lines(self) -> list[str]:
        """For a person."""
        rows = [(name, value if isinstance(value, str) else f"predicted excess risk {value:.3g}") for name, value in self.others]
        return [self.why, *(f"    {name:<24} {words}" for name, words in rows)]


def choose(mechanism: str, facts: PublicFacts, budget: PrivacyBudget, *, paid: bool = False) -> Choice:
    """The mechanism asked for by name, "sgd" the best run, "auto" the one of least predicted risk, no `_DEAR` one if `paid`."""
    if not isinstance(mechanism, str) or mechanism not in NAMES:
        near = difflib.get_close_matches(str(mechanism), NAMES, n=1)
        raise InputError(
            f"mechanism: got {mechanism!r};{f' did you mean {near[0]!r}?' if near else ''} it needs one of {', '.join(NAMES)}.",
            source="the option mechanism",
        )
    return _choose(mechanism, facts, budget, paid and mechanism == "auto")


# A choice follows from public facts and statements alone and takes seconds: clones, folds and refits of one size share it.
@lru_cache(maxsize=256)
def _choose(mechanism: str, facts: PublicFacts, budget: PrivacyBudget, cheap: bool) -> Choice:
    """The choice among all allowed mechanisms; `cheap`: a ledger pays, so none whose price there is several times its epsilon."""
    nothing = risk(facts, 1.0, 0.0)  # of zero weights, which need no data
    if mechanism == "auto" and facts.records * budget.epsilon < 1.0:
        # Group privacy: all records exchanged change the law of the weights by a factor of e at most.
        why = f"zero weights: {facts.records} records are fewer than 1/epsilon, so that no private weights could say much of them"
        return Choice(plan=_zeros(facts, nothing), others=(), why=why)
    allowed = [
        candidate
        for candidate in MECHANISMS
        if mechanism in ("auto", candidate.name)
        or (mechanism == "sgd" and candidate.name in _RUN_NAMES)
        or (mechanism, candidate.name) == ("correlated", "cyclic_poisson_correlated")  # where the batches were asked for
    ]
    plans, refused = _plans([candidate for candidate in allowed if not (cheap and candidate.name in _DEAR)], facts, budget)
    if cheap:
        refused += [(name, "left out: a ledger would count several times its epsilon for it") for name in sorted(_DEAR)]
    if not plans:
        name, reason = refused[0]
        raise InputError(
            f"mechanism: {mechanism} cannot train this: " + (f"{reason}." if len(refused) == 1 else f"{name}: {reason}, and so on."),
            source="the parameters and the public size of the data",
            remedy='set mechanism="auto", and leave batches, passes and schedule at "auto"',
        )
    best, smallest = _best(plans, facts, alike=_NOTHING_LEFT * nothing), min(plan.risk for plan in plans)
    rest = [(plan.name, plan.risk) for plan in plans if plan is not best]
    if mechanism != "auto":
        return Choice(plan=best, others=(*rest, *refused), why=f"{best.name} ({best.summary}): asked for by mechanism = {mechanism!r}")
    if best.risk > (1.0 - _LEAST_GAIN) * nothing:
        listed = (*((plan.name, plan.risk) for plan in plans), *refused)
        return Choice(plan=_zeros(facts, nothing), others=listed, why="zero weights: no mechanism is expected to do better at this epsilon")
    why = f"{best.name} ({best.summary}): predicted excess risk {best.risk:.3g}, the least {smallest:.3g}; zero weights {nothing:.3g}"
    return Choice(plan=best, others=(*sorted(rest, key=lambda row: row[1]), *refused), why=why)


def _best(plans: Sequence[MechanismPlan], facts: PublicFacts, *, alike: float) -> MechanismPlan:
    """The plan of least risk, or a favoured one whose risk is near to that; risks below `alike` are near to any."""
    smallest = min(plan.risk for plan in plans)
    if facts.in_blocks:
        return min((plan for plan in plans if plan.risk <= max(_IN_BLOCKS * smallest, alike)), key=lambda plan: (plan.passes, plan.risk))
    if facts.release == "all":
        favoured, tie = _EVERY_ITERATE
        limit = tie * smallest
    else:
        classes = facts.target_bound is None
        favoured, tie = _CLASSES if classes else _REGRESSION
        limit = min((_OTHER_RUNS if classes and plan.name in _RUN_NAMES else tie) * plan.risk for plan in plans)
        if not classes and facts.wants_run:  # which no minimiser can do
            favoured, limit = _CLASSES[0], _CLASSES[1] * smallest
    near = (plan for plan in plans if plan.name == favoured and plan.risk <= max(limit, alike))
    return next(near, min(plans, key=lambda plan: plan.risk))


def _plans(
    allowed: Sequence[Mechanism], facts: PublicFacts, budget: PrivacyBudget
) -> tuple[list[MechanismPlan], list[tuple[str, float | str]]]:
    """Of those that can train this problem, and the reason against each other."""
    plans: list[MechanismPlan] = []
    refused: list[tuple[str, float | str]] = []
    for candidate in allowed:
        reason = candidate.refusal(facts)
        if reason is None:
            try:
                plans.append(candidate.plan(facts, budget))
            except CalibrationError as error:
                reason = error.what.rstrip(".")
        if reason is not None:
            refused.append((candidate.name, f"not possible: {reason}"))
    return plans, refused


def _zeros(facts: PublicFacts, predicted: float) -> MechanismPlan:
    """Zero weights: they look at no data."""

    def train(records: AnyRecords, draws: RandomSources, penalties: Penalties) -> Outcome:
        statement = Statement(
            name="zero weights",
            guarantee=GDP(0.0),
            neighbours=facts.neighbours,
            unit=facts.unit,
            findings=(holds("no data", "the weights do not depend on the data", evidence="enforced"),),
            citations=(),
            derivation=derivation("no data"),
        )
        return Outcome(weights=np.zeros((facts.rows, facts.loss.outputs)), statement=statement, facts=facts, passes=0)

    return MechanismPlan(name="zeros", risk=predicted, summary="no data is looked at", guarantee=lambda: GDP(0.0), train=train)
