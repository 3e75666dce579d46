"""Mechanism and Plan: the interface of every way to train an estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from lethe.calculus.guarantees import Guarantee
from lethe.certificates.statement import Statement
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.partitioned.records import BlockRecords
from lethe.mechanisms.base import Array
from lethe.run.run import Run

AnyRecords = Records | BlockRecords


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RandomSources:
    """Where the randomness of one fit comes from.

    Args:
        batches: secret draws: permutations, samples.
        noise: of a run.
        mechanism: noise of what is no run; None: fresh entropy.
        seeded: whether all three came from a seed.
    """

    batches: torch.Generator
    noise: torch.Generator
    mechanism: np.random.Generator | None
    seeded: bool


class Penalties(NamedTuple):
    r"""What was asked for beside the mean loss, for rows of norm 1: $\frac\kappa2\|W\|^2 + \lambda\|W\|_1$.

    They are not among the public facts: where the norm of the rows was released, they depend on it.
    """

    ridge: float
    l1: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The release of a mechanism.

    Args:
        weights: shape (D, k), the intercept's row last; for rows of norm at most 1.
        statement: what they cost.
        run: the run that was recorded; None where the mechanism is none.
        passes: over the data, 0 if it was not looked at.
        averaged: of how many last iterates of the run the weights are the mean; 1: its last iterate, or no run.
    """

    weights: Array
    statement: Statement
    run: Run | None = None
    passes: int = 1
    averaged: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanismPlan:
    """A mechanism made ready: everything chosen from public facts, nothing read of the data yet.

    What `train` guarantees is fixed by the plan: of mechanisms of one cost each, a choice that looks at an earlier release may cost more
    than any of them (`lethe.mechanisms.base.joint`).

    Args:
        name: of the mechanism.
        risk: what `lethe.estimators.choice.risk` predicts.
        summary: what was chosen, in a few words.
        guarantee: of what `train` will release; a function, since finding the noise of a run takes time.
        train: carries it out, with penalties that are at least the planned ones.
        passes: over the records, about; a public guess, and not what the data made it take.
    """

    name: str
    risk: float
    summary: str
    guarantee: Callable[[], Guarantee]
    train: Callable[[AnyRecords, RandomSources, Penalties], Outcome]
    passes: int = 0


class Mechanism(Protocol):
    """A way to train a linear model."""

    @property
    def name(self) -> str:
        """As the parameter `mechanism` names it."""
        ...

    def refusal(self, facts: PublicFacts) -> str | None:
        """Why it cannot train this problem; None: it can."""
        ...

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> MechanismPlan:
        """Choose its numbers from public facts.

        Raises:
            CalibrationError: the budget is too small for it.
        """
        ...
