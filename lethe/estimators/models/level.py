r"""LevelRelease: the factor by which the mean predictions of a model of counts or costs are corrected, released after its training.

`PrivateLogLink` plans it. To bound gradients its loss is cut: the derivative in the score is clipped to [-c, c], which biases predictions
downwards. T is the bound on targets, in units of the training.

Of n records with targets y and means $\hat\mu$, both cut at T, released are $A = \sum y$ and $B = \sum\hat\mu$ with Gaussian noise, each
record's weight in [0, 1] counted; the intercept moves by $\log(A/B)$. Where the noise of costs does not depend on their mean but for its
size, as the gamma loss has it, that is the inverse link of the cut loss; elsewhere it makes the mean prediction that of the targets. For
let $y = \mu\xi$ with $\xi$ independent of the row and $\log\mu$ linear with an intercept: with r such that $E\max(-c, \min(c, 1 - r\xi)) =
0$ the mean slope of the cut loss is 0 at $\hat\mu = \mu/r$ for every row, so by convexity these weights are a minimiser, and $\sum
y/\sum\hat\mu$ is about $r\,E\xi$, the factor that makes them right. A record moves the two sums by $\sqrt2\,T$ at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators.budget import PrivacyBudget, planned_statement
from lethe.estimators.choice.mechanism import AnyRecords, Outcome
from lethe.estimators.inputs.facts import CONSTANT
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std
from lethe.mechanisms.bounded_sums import sums_sensitivity, with_noise
from lethe.run.losses import Tweedie

# Of the total squared mu: as much as makes n mu 800, within these bounds; of less than 80 nothing is released.
_SHARE, _LEAST_UNITS = {"units": 800.0, "smallest": 0.01, "largest": 0.15}, 80.0
_NAME = "level (sums of the targets and of the means)"
_FAR, _NOTHING = 2000.0, 1e-100  # a score whose mean is 0; a bound on targets that leaves nothing of them
_LARGEST = 4.0  # of the logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRelease:
    """The release as it was planned."""

    share: GDP
    bound: float  # T, in the unit of the targets that are trained on
    cost: Statement

    @classmethod
    def planned(cls, records: int, budget: PrivacyBudget, *, bound: float) -> LevelRelease | None:
        """None where noise would hide the level."""
        share = budget.planned_share(records, **_SHARE)
        if records * share.mu < _LEAST_UNITS:
            return None
        sensitivity = sums_sensitivity(2, budget.neighbours)
        cost = gaussian_guarantee(sensitivity, gaussian_noise_std(sensitivity, share))
        return cls(share=share, bound=bound, cost=planned_statement(_NAME, cost, neighbours=budget.neighbours))

    def __call__(self, records: AnyRecords, outcome: Outcome, *, generator: np.random.Generator | None) -> tuple[Outcome, Statement]:
        """The outcome with its intercept moved, and what that cost."""
        far = np.zeros_like(outcome.weights)
        far[-1] = -_FAR / CONSTANT
        # The slope of a Poisson loss is the mean minus the target, cut at T; the constant feature's gradients add it up.
        sums = np.array([-_constant(records, self.bound, far, self.bound), _constant(records, self.bound, outcome.weights, _NOTHING)])
        noise_std = gaussian_noise_std(sums_sensitivity(2, self.cost.neighbours), self.share)
        noisy, statement = with_noise(
            sums, records=len(records), noise_std=noise_std, neighbours=self.cost.neighbours, name=_NAME, generator=generator
        )
        targets, means = np.maximum(noisy, 2.0 * noise_std).tolist()
        weights = outcome.weights.copy()
        weights[-1] += min(max(math.log(targets / means), -_LARGEST), _LARGEST) / CONSTANT
        return replace(outcome, weights=weights), statement


def _constant(records: AnyRecords, cut: float, weights: np.ndarray, target_bound: float) -> float:
    """Sum of slopes over the cut, each in [-1, 1] and of one sign."""
    loss = Tweedie(feature_norm=1.0, power=1.0, target_bound=target_bound, cut=cut)
    gradient = records.with_loss(loss).with_envelope(None).gradient_sum(weights, slice(0, len(records)))
    return float(gradient[-1, 0]) / (CONSTANT * cut)
