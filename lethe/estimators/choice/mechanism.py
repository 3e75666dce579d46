"""MechanismPlan and Outcome: the interface of every way to train a linear model.

`choose` asks each mechanism for a `MechanismPlan`, which has its price and predicted risk, and `PrivateLinearModel` then carries out the
chosen one on the records, which gives an `Outcome`: released weights and their proof. perturbed.py and runs.py implement them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lethe.calculus.guarantees import Guarantee
from lethe.certificates.statement import Statement
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.partitioned.records import BlockRecords
from lethe.mechanisms.base import Array
from lethe.run.run import Run

AnyRecords = Records | BlockRecords


@dataclass(frozen=True, slots=True, eq=False)
class RandomSources:
    """Where the randomness of one fit comes from; none of it is kept."""

    order: Any  # the public order in which batches count the records, shape (n,); None: as they are stored, of tables in blocks
    norm: np.random.Generator | None  # noise of releases before training, such as a norm; None: fresh entropy
    batches: Any  # a generator of torch for secret draws of samples; None: fresh entropy
    noise: Any  # and one for the noise of a run
    mechanism: np.random.Generator | None  # noise of what is no run; None: fresh entropy
    seeded: bool  # whether all but the order came from a seed


class Penalties(NamedTuple):
    r"""What was asked for, for rows of norm 1: $\frac\kappa2\|W\|^2 + \lambda\|W\|_1$; where the norm was released it is no public fact."""

    ridge: float
    l1: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The release of a mechanism."""

    weights: Array  # shape (D, k), the intercept's row last; for rows of norm at most 1
    statement: Statement  # what they cost
    facts: PublicFacts  # the problem with the loss that was trained on
    ridge: float = 0.0  # under which the weights are about a minimiser; 0 of a run, which may be far from one
    run: Run | None = None  # the run that was recorded; None where the mechanism is none
    passes: int = 1  # over the data, 0 if it was not looked at
    averaged: int = 1  # of how many last iterates of the run the weights are the mean; 1: its last iterate, or no run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanismPlan:
    """A mechanism made ready: everything chosen from public facts, what `train` guarantees too, and nothing read of the data yet."""

    name: str  # of the mechanism
    risk: float  # what `lethe.estimators.choice.risk` predicts
    summary: str  # what was chosen, in a few words
    guarantee: Callable[[], Guarantee]  # of what `train` will release; a function, since finding the noise of a run takes time
    train: Callable[[AnyRecords, RandomSources, Penalties], Outcome]  # carries it out, with penalties that are at least the planned ones
    passes: int = 0  # over the records, about; a public guess, and not what the data made it take
    run: Callable[[], Run] | None = None  # the planned one, as `guarantee`; None of what is none
