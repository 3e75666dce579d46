"""The mechanisms that are no gradient descent: a perturbed minimiser, with the ridge that the public model of the risk asks for, or noisy
moments.

`choose` makes plans of these beside the runs (runs.py). A perturbed minimiser is exact minimisation with noise in the objective or on the
result; noisy moments are least squares from noisy second moments (AdaSSP). The noise is calibrated here, the maths is in
`lethe.mechanisms`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from lethe.calculus.guarantees import GDP, ApproxDP, Guarantee
from lethe.certificates.derivation import Derivation
from lethe.certificates.findings import enforced
from lethe.errors import CalibrationError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.mechanism import AnyRecords, MechanismPlan, Outcome, Penalties, RandomSources
from lethe.estimators.choice.risk import curvatures, cut_losses, minimiser_missed, reference, risk
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import fits_densely
from lethe.mechanisms.adassp import adassp, moments_sensitivity, noise_norm
from lethe.mechanisms.base import PrivateWeights, gaussian_guarantee, gaussian_noise_std
from lethe.mechanisms.minimisers.objective_perturbation import (
    least_noise_std,
    objective_derivation,
    objective_guarantee,
    objective_noise_std,
    objective_perturbation,
    release_std,
)
from lethe.mechanisms.minimisers.output_perturbation import output_derivation, output_perturbation, output_sensitivity, solver_tolerance
from lethe.run.losses import LeastSquares, Softmax, TruncatedSoftmax

ENFORCED = {"public size": "neighbours have the same number of records, by the definition of the relation"}
_RIDGES = tuple(3.0**power for power in range(-16, 2))  # of the smoothness
# Beyond these operations the solver takes more than a minute; a run takes seconds.
_MOST_WORK, _MOST_WORK_IN_BLOCKS = 4e12, 1e15  # the second is a cluster's
_PASSES = 12  # over a table in blocks, about: one for each step of Newton's method
_MOST_MOMENTS = 3_000  # columns
_OF_A_RUN = "batches, passes, schedule, sample weights, users and l1 are a run's"


@dataclass(frozen=True, slots=True)
class MinimiserMechanism:
    """The minimiser of a tilted risk, or of the risk itself with noise, by its name."""

    name: str

    def refusal(self, facts: PublicFacts) -> str | None:
        """Something that only a run has, a table too large for a solver, or a loss whose vertices of gradients are not known."""
        tilted = self.name == "objective_perturbation"
        if tilted and facts.loss.outputs > 1 and not isinstance(facts.loss, Softmax | TruncatedSoftmax):
            return f"no bound on it is known for the {facts.loss.name} loss"
        if facts.wants_run:
            return _OF_A_RUN
        if not facts.in_blocks and not fits_densely(facts.records, facts.columns):
            return f"its solver needs a dense copy of {facts.records} x {facts.columns} features"
        # About: twenty Hessians, or some hundred products with them if that is less.
        work = facts.records * facts.weights * min(20.0 * facts.weights, 2_000.0)
        if work > (_MOST_WORK_IN_BLOCKS if facts.in_blocks else _MOST_WORK):
            return "its solver would take too long at this size"
        return None

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> MechanismPlan:
        """The cut of the loss and the ridge of least predicted risk, the ridge no less than the one asked for."""
        target, minimiser = ApproxDP(_expected(budget), budget.delta), _Tilted if self.name == "objective_perturbation" else _Noised
        calibrated = _least_risk(cut_losses(facts), budget, lambda cut: minimiser(cut, target))
        chosen, ridge, goal = minimiser(calibrated.facts, calibrated.goal), calibrated.ridge, calibrated.goal

        def train(records: AnyRecords, draws: RandomSources, penalties: Penalties) -> Outcome:
            trained = chosen.trained(records, ridge, penalties.ridge, draws.mechanism)
            stated = replace(trained.statement, findings=enforced(trained.statement.findings, ENFORCED))
            if penalties.ridge > ridge:  # it costs less; by how much may depend on a release, so that what was planned is stated
                stated = replace(stated, guarantee=chosen.guarantee_at(ridge, goal), derivation=chosen.derivation_at(ridge, goal))
            return Outcome(weights=trained.weights, statement=stated, facts=calibrated.facts, ridge=max(ridge, penalties.ridge))

        return MechanismPlan(
            name=self.name,
            risk=calibrated.risk,
            summary=f"{calibrated.facts.loss.name} loss, ridge {ridge:.3g} on rows of norm 1",
            guarantee=lambda: chosen.guarantee_at(ridge, goal),
            train=train,
            passes=_PASSES,
        )


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

    def trained(self, records: AnyRecords, ridge: float, requested: float, generator: np.random.Generator | None) -> PrivateWeights:
        return objective_perturbation(
            *records.arrays(self.facts.loss),
            loss=self.facts.loss,
            regularisation=max(ridge, requested),
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
        return objective_guarantee(self.facts.loss, neighbours=self.facts.neighbours, **self._release(ridge, goal))

    def derivation_at(self, ridge: float, goal: ApproxDP) -> Derivation:
        return objective_derivation(self.facts.loss, **self._release(ridge, goal))

    def _release(self, ridge: float, goal: ApproxDP) -> dict[str, Any]:
        facts, noise_std = self.facts, _objective_noise(self.facts, ridge, goal)
        return {"regularisation": ridge, "noise_std": noise_std, "records": facts.records, "weights": facts.weights}


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

    def trained(self, records: AnyRecords, ridge: float, requested: float, generator: np.random.Generator | None) -> PrivateWeights:
        return output_perturbation(
            *records.arrays(self.facts.loss),
            loss=self.facts.loss,
            regularisation=max(ridge, requested),
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


# The plan and its settlement ask for the same noise.
@lru_cache(maxsize=256)
def _objective_noise(facts: PublicFacts, ridge: float, target: ApproxDP) -> float:
    sizes: dict[str, Any] = {"records": facts.records, "weights": facts.weights}
    return objective_noise_std(facts.loss, regularisation=ridge, target=target, neighbours=facts.neighbours, **sizes)


def _expected(budget: PrivacyBudget) -> float:
    """The epsilon that is left for the training, about; `PrivacyBudget.settle` finds it exactly."""
    if not budget.spent:
        return budget.epsilon
    from_mu = gaussian_guarantee(budget.mu, 1.0).epsilon(budget.delta)
    if from_mu <= 0.0:
        raise budget.exhausted()
    return min(from_mu, budget.epsilon)


class _Calibrated(NamedTuple):
    """A loss, a ridge, their predicted risk, and the target with which they and all that was spent meet the total."""

    facts: PublicFacts
    ridge: float
    risk: float
    goal: ApproxDP


def _least_risk(
    losses: Sequence[tuple[PublicFacts, float]], budget: PrivacyBudget, minimiser: Callable[[PublicFacts], _Tilted | _Noised]
) -> _Calibrated:
    """Of the losses and the ridges of a grid, none less than the one asked for, those of least risk that can meet the total."""
    # A risk is found only where what it is `at_least` is less than the risks found so far, and a target only for the least of them.
    tried = [(minimiser(facts), cost) for facts, cost in losses]
    # Where risks are equal, the first loss and the smallest ridge.
    waiting = [
        (cut.at_least(ridge) + cost, False, index, 0.0, ridge)
        for index, (cut, cost) in enumerate(tried)
        for ridge in {max(cut.facts.ridge, share * cut.facts.smoothness) for share in _RIDGES}
    ]
    heapify(waiting)
    while waiting:
        value, is_predicted, place, _, ridge = heappop(waiting)
        one, cost = tried[place]
        with suppress(CalibrationError):  # too little curvature for this epsilon, or for what is left of it
            if is_predicted:
                return _Calibrated(one.facts, ridge, value, budget.settle(partial(one.guarantee_at, ridge)))
            predicted = one.predicted(ridge)
            heappush(waiting, (predicted + cost, True, place, predicted, ridge))
    raise CalibrationError("no ridge of the grid lets a perturbed minimiser meet the target.", remedy="take a larger epsilon")


@dataclass(frozen=True, slots=True)
class NoisyMoments:
    """Least squares from noisy second moments (AdaSSP)."""

    name: str = "adassp"

    def refusal(self, facts: PublicFacts) -> str | None:
        """It is for least squares with bounded targets, without l1, not for a Huber loss asked for, and builds a matrix of D x D."""
        if not isinstance(facts.loss, LeastSquares) or facts.target_bound is None:
            return "it is for least squares with a bound on the targets"
        if facts.keeps_loss:
            return "it fits squares, and a loss that is linear far out was asked for"
        if facts.loss.residual_bound < facts.target_bound:
            return "it fits squares, and residuals are to be truncated well before the targets' bound"
        if facts.wants_run:
            return _OF_A_RUN
        if facts.rows > _MOST_MOMENTS or not (facts.in_blocks or fits_densely(facts.records, facts.columns)):
            return f"it needs a dense copy of {facts.records} x {facts.columns} features and their second moments"
        return None

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> MechanismPlan:
        """The noise, from the sensitivity; its ridge adapts to what is released."""
        bound = facts.target_bound
        assert bound is not None  # see refusal
        sensitivity = moments_sensitivity(norm=facts.norm, neighbours=facts.neighbours)
        if budget.mu <= 0.0:
            raise budget.exhausted()
        noise_std = gaussian_noise_std(sensitivity, GDP(budget.mu))
        curved = curvatures(facts) * facts.records
        ridge = max(facts.ridge * facts.records, noise_norm(noise_std, facts.rows) - float(curved.min()))
        errors = (noise_std * bound / facts.norm) ** 2 + 0.5 * (noise_std * reference(facts)) ** 2

        def guarantee_at(goal: Guarantee) -> Guarantee:
            return gaussian_guarantee(sensitivity, gaussian_noise_std(sensitivity, goal))

        def train(records: AnyRecords, draws: RandomSources, penalties: Penalties) -> Outcome:
            solution = adassp(
                *records.arrays(),
                feature_norm=facts.norm,
                target_bound=bound,
                target=budget.settle(guarantee_at),
                neighbours=facts.neighbours,
                least_ridge=penalties.ridge * facts.records,
                generator=draws.mechanism,
            )
            return Outcome(weights=solution.weights, statement=solution.statement, facts=facts)

        return MechanismPlan(
            name=self.name,
            risk=risk(facts, minimiser_missed(facts, ridge / facts.records), errors / np.square(curved + ridge)),
            summary=f"noise {noise_std:.3g} on moments of rows of norm 1",
            guarantee=lambda: guarantee_at(budget.settle(guarantee_at)),
            train=train,
            passes=1,
        )
