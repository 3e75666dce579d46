"""Training by a perturbed minimiser: output and objective perturbation, with the ridge that the public model of the risk asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from lethe.calculus.guarantees import ApproxDP, Guarantee
from lethe.certificates.derivation import Derivation
from lethe.certificates.findings import enforced
from lethe.errors import CalibrationError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.cuts import cut_losses
from lethe.estimators.choice.mechanism import AnyRecords, MechanismPlan, Outcome, Penalties, RandomSources
from lethe.estimators.choice.risk import curvatures, minimiser_missed, risk
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import fits_densely
from lethe.mechanisms.base import Array, PrivateWeights, gaussian_guarantee, gaussian_noise_std
from lethe.mechanisms.minimisers.objective_perturbation import (
    least_noise_std,
    objective_derivation,
    objective_guarantee,
    objective_noise_std,
    objective_perturbation,
    release_std,
)
from lethe.mechanisms.minimisers.output_perturbation import output_derivation, output_perturbation, output_sensitivity, solver_tolerance
from lethe.run.losses import Softmax, TruncatedSoftmax

ENFORCED = {"public size": "neighbours have the same number of records, by the definition of the relation"}
_RIDGES = tuple(3.0**power for power in range(-16, 2))  # of the smoothness
# Beyond these operations the solver takes more than a minute; a run takes seconds.
_MOST_WORK = 4e12
_MOST_WORK_IN_BLOCKS = 1e15  # a cluster's
_PASSES = 12  # over a table in blocks, about: one for each step of Newton's method


@dataclass(frozen=True, slots=True)
class ObjectivePerturbation:
    """The minimiser of a tilted risk."""

    name: str = "objective_perturbation"

    def refusal(self, facts: PublicFacts) -> str | None:
        """See `refusal`; and it needs the vertices of a record's gradients, which are known for one score and for softmax."""
        if facts.loss.outputs > 1 and not isinstance(facts.loss, Softmax | TruncatedSoftmax):
            return f"no bound on it is known for the {facts.loss.name} loss"
        return refusal(facts)

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> MechanismPlan:
        """See `_plan`."""
        return _plan(self.name, facts, budget, _Tilted)


@dataclass(frozen=True, slots=True)
class OutputPerturbation:
    """The minimiser of the risk, with noise."""

    name: str = "output_perturbation"

    def refusal(self, facts: PublicFacts) -> str | None:
        """See `refusal`."""
        return refusal(facts)

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> MechanismPlan:
        """See `_plan`."""
        return _plan(self.name, facts, budget, _Noised)


@dataclass(frozen=True, slots=True)
class _Tilted:
    """What objective perturbation of one loss does with a ridge: its predicted risk, a number that this is never below, and its cost."""

    facts: PublicFacts
    target: ApproxDP

    def at_least(self, ridge: float) -> float:
        facts = self.facts
        noise_std = least_noise_std(facts.loss, ridge=facts.records * ridge, target=self.target, neighbours=facts.neighbours)
        return self._with_noise(ridge, noise_std)

    def predicted(self, ridge: float) -> float:
        return self._with_noise(ridge, _objective_noise(self.facts, ridge, self.target))

    def trained(self, records: AnyRecords, ridge: float, asked: float, generator: np.random.Generator | None) -> PrivateWeights:
        return objective_perturbation(
            *records.given(self.facts.loss),
            loss=self.facts.loss,
            regularisation=max(ridge, asked),
            noise_std=_objective_noise(self.facts, ridge, self.target),  # with a larger ridge it costs less
            neighbours=self.facts.neighbours,
            records=self.facts.records,
            generator=generator,
        )

    def _with_noise(self, ridge: float, noise_std: float) -> float:
        facts = self.facts
        tilt = noise_std / (facts.records * (curvatures(facts) + ridge))
        release = release_std(facts.loss, records=facts.records, regularisation=ridge, noise_std=noise_std)
        return risk(facts, minimiser_missed(facts, ridge), np.square(tilt) + release**2)

    def guarantee_at(self, ridge: float, goal: ApproxDP) -> Guarantee:
        return objective_guarantee(
            self.facts.loss,
            records=self.facts.records,
            weights=self.facts.weights,
            regularisation=ridge,
            noise_std=_objective_noise(self.facts, ridge, goal),
            neighbours=self.facts.neighbours,
        )

    def derivation_at(self, ridge: float, goal: ApproxDP) -> Derivation:
        facts = self.facts
        return objective_derivation(
            facts.loss,
            records=facts.records,
            weights=facts.weights,
            regularisation=ridge,
            noise_std=_objective_noise(facts, ridge, goal),
        )


@dataclass(frozen=True, slots=True)
class _Noised:
    """The same of output perturbation, whose noise takes no search."""

    facts: PublicFacts
    target: ApproxDP

    def at_least(self, ridge: float) -> float:
        return 0.0

    def predicted(self, ridge: float) -> float:
        variance = gaussian_noise_std(self._sensitivity(ridge), self.target) ** 2
        return risk(self.facts, minimiser_missed(self.facts, ridge), variance)

    def trained(self, records: AnyRecords, ridge: float, asked: float, generator: np.random.Generator | None) -> PrivateWeights:
        return output_perturbation(
            *records.given(self.facts.loss),
            loss=self.facts.loss,
            regularisation=max(ridge, asked),
            target=self.target,
            neighbours=self.facts.neighbours,
            records=self.facts.records,
            generator=generator,
        )

    def _sensitivity(self, ridge: float) -> float:
        facts, bound = self.facts, self.facts.gradient_bound
        tolerance = solver_tolerance(bound, facts.records)
        return output_sensitivity(
            records=facts.records, regularisation=ridge, gradient_bound=bound, neighbours=facts.neighbours, tolerance=tolerance
        )

    def guarantee_at(self, ridge: float, goal: ApproxDP) -> Guarantee:
        sensitivity = self._sensitivity(ridge)
        return gaussian_guarantee(sensitivity, gaussian_noise_std(sensitivity, goal))

    def derivation_at(self, ridge: float, goal: ApproxDP) -> Derivation:
        noise_std = gaussian_noise_std(self._sensitivity(ridge), goal)
        return output_derivation(self.facts.loss, records=self.facts.records, regularisation=ridge, noise_std=noise_std)


def _plan(
    name: str, facts: PublicFacts, budget: PrivacyBudget, minimiser: Callable[[PublicFacts, ApproxDP], _Tilted | _Noised]
) -> MechanismPlan:
    """The cut of the loss and the ridge of least predicted risk, the ridge no less than the one asked for."""
    target = ApproxDP(*_expected(budget))
    settled = _least_risk(cut_losses(facts), budget, lambda one: minimiser(one, target))
    chosen, ridge = minimiser(settled.facts, settled.goal), settled.ridge

    def train(records: AnyRecords, draws: RandomSources, penalties: Penalties) -> Outcome:
        found = chosen.trained(records, ridge, penalties.ridge, draws.mechanism)
        if penalties.ridge <= ridge:
            return _outcome(found, None)
        return _outcome(found, (chosen.guarantee_at(ridge, settled.goal), chosen.derivation_at(ridge, settled.goal)))

    summary = f"{settled.facts.loss.name} loss, ridge {ridge:.3g} on rows of norm 1"
    return MechanismPlan(
        name=name,
        risk=settled.risk,
        summary=summary,
        guarantee=lambda: chosen.guarantee_at(ridge, settled.goal),
        train=train,
        passes=_PASSES,
    )


def refusal(facts: PublicFacts) -> str | None:
    """Why no minimiser can be perturbed: something that only a run has was asked for, or the table is too large for a solver."""
    if facts.wants_run:
        return "batches, passes, schedule, sample weights, users and l1 are a run's"
    if not facts.in_blocks and not fits_densely(facts.records, facts.columns):
        return f"its solver needs a dense copy of {facts.records} x {facts.columns} features"
    if work(facts) > (_MOST_WORK_IN_BLOCKS if facts.in_blocks else _MOST_WORK):
        return "its solver would take too long at this size"
    return None


def work(facts: PublicFacts) -> float:
    """About how many operations the solver takes: twenty Hessians, or some hundred products with them if that is less."""
    return facts.records * facts.weights * min(20.0 * facts.weights, 2_000.0)


def _expected(budget: PrivacyBudget) -> tuple[float, float]:
    """What is left for the training, about; `Budget.settle` finds it exactly."""
    if not budget.spent:
        return budget.epsilon, budget.delta
    from_mu = gaussian_guarantee(budget.mu, 1.0).epsilon(budget.delta)
    if from_mu <= 0.0:
        raise CalibrationError(f"epsilon = {budget.epsilon:g}: nothing is left of it for the training.")
    return min(from_mu, budget.epsilon), budget.delta


# The plan and its settlement ask for the same noise.
@lru_cache(maxsize=256)
def _objective_noise(facts: PublicFacts, ridge: float, target: ApproxDP) -> float:
    return objective_noise_std(
        facts.loss,
        records=facts.records,
        weights=facts.weights,
        regularisation=ridge,
        target=target,
        neighbours=facts.neighbours,
    )


class _Settled(NamedTuple):
    """A loss, a ridge, their predicted risk, and the target with which they and all that was spent meet the total."""

    facts: PublicFacts
    ridge: float
    risk: float
    goal: ApproxDP


def _least_risk(
    losses: Sequence[tuple[PublicFacts, float]], budget: PrivacyBudget, minimiser: Callable[[PublicFacts], _Tilted | _Noised]
) -> _Settled:
    """Of the losses and the ridges of a grid, none less than the one asked for, those of least risk that can meet the total.

    A risk is found only where what it is `at_least` is less than the risks found so far, and a target only for the least of them.
    """
    tried = [(minimiser(facts), cost) for facts, cost in losses]
    # Where risks are equal, the first loss and the smallest ridge.
    waiting = [
        (one.at_least(ridge) + cost, False, place, 0.0, ridge)
        for place, (one, cost) in enumerate(tried)
        for ridge in {max(one.facts.ridge, share * one.facts.smoothness) for share in _RIDGES}
    ]
    heapify(waiting)
    while waiting:
        value, found, place, _, ridge = heappop(waiting)
        one, cost = tried[place]
        with suppress(CalibrationError):  # too little curvature for this epsilon, or for what is left of it
            if found:
                return _Settled(one.facts, ridge, value, budget.settle(partial(one.guarantee_at, ridge)))
            predicted = one.predicted(ridge)
            heappush(waiting, (predicted + cost, True, place, predicted, ridge))
    raise CalibrationError("no ridge of the grid lets a perturbed minimiser meet the target.", remedy="take a larger epsilon")


def _outcome(found: PrivateWeights, planned: tuple[Guarantee, Derivation] | None) -> Outcome:
    """With a larger ridge than was planned it costs less; by how much may depend on a release, so that what was planned is stated."""
    weights: Array = found.weights
    stated = replace(found.statement, findings=enforced(found.statement.findings, ENFORCED))
    if planned is not None:
        guarantee, numbers = planned
        stated = replace(stated, guarantee=guarantee, derivation=numbers)
    return Outcome(weights=weights, statement=stated)
