"""Training by noisy moments (AdaSSP): least squares with bounded targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.calculus.guarantees import GDP, Guarantee
from lethe.errors import CalibrationError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.mechanism import AnyRecords, MechanismPlan, Outcome, Penalties, RandomSources
from lethe.estimators.choice.risk import curvatures, minimiser_missed, reference, risk
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import fits_densely
from lethe.mechanisms.adassp import adassp, moments_sensitivity, noise_norm
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std
from lethe.run.losses import LeastSquares


@dataclass(frozen=True, slots=True)
class NoisyMoments:
    """Least squares from noisy second moments."""

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
            return "batches, passes, schedule, sample weights, users and l1 are a run's"
        if facts.rows > 3_000 or not (facts.in_blocks or fits_densely(facts.records, facts.columns)):
            return f"it needs a dense copy of {facts.records} x {facts.columns} features and their second moments"
        return None

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> MechanismPlan:
        """The noise, from the sensitivity; its ridge adapts to what is released."""
        bound = facts.target_bound
        assert bound is not None  # see refusal
        sensitivity = moments_sensitivity(norm=facts.norm, neighbours=facts.neighbours)
        if budget.mu <= 0.0:
            raise CalibrationError(f"epsilon = {budget.epsilon:g}: nothing is left of it for the training.")
        noise_std = gaussian_noise_std(sensitivity, GDP(budget.mu))
        curved = curvatures(facts) * facts.records
        ridge = max(facts.ridge * facts.records, noise_norm(noise_std, facts.rows) - float(curved.min()))
        errors = (noise_std * bound / facts.norm) ** 2 + 0.5 * (noise_std * reference(facts)) ** 2
        predicted = risk(facts, minimiser_missed(facts, ridge / facts.records), errors / np.square(curved + ridge))

        def guarantee_at(goal: Guarantee) -> Guarantee:
            return gaussian_guarantee(sensitivity, gaussian_noise_std(sensitivity, goal))

        def train(records: AnyRecords, draws: RandomSources, penalties: Penalties) -> Outcome:
            found = adassp(
                *records.given(),
                feature_norm=facts.norm,
                target_bound=bound,
                target=budget.settle(guarantee_at),
                neighbours=facts.neighbours,
                least_ridge=penalties.ridge * facts.records,
                generator=draws.mechanism,
            )
            return Outcome(weights=found.weights, statement=found.statement)

        return MechanismPlan(
            name=self.name,
            risk=predicted,
            summary=f"noise {noise_std:.3g} on moments of rows of norm 1",
            guarantee=lambda: guarantee_at(budget.settle(guarantee_at)),
            train=train,
            passes=1,
        )
