"""The two sides of a private search's split: records that candidates are fitted on, and those that score them, in memory or in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from lethe.errors import InputError
from lethe.estimators.inputs.records import Index
from lethe.estimators.pipelines.searched_steps import private_steps
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, targets_of
from lethe.partitions.passes import total
from lethe.partitions.table import ExaminedTable, chosen_records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SidesInMemory:
    """Of a table in memory."""

    # table, targets: shapes (n, d) and (n,)
    table: Any
    targets: Any
    # training, aside: numbers of records, of which none is in both
    training: Index
    aside: Index
    bound: float | None  # on what one residual counts; None: predictions are labels

    def fit(self, model: Any) -> None:
        """Fit a model on the rows to train on."""
        model.fit(self.table[self.training], self.targets[self.training])

    def score(self, model: Any) -> float:
        """The mean over the rows aside of numbers in [0, 1]."""
        return float(np.mean(counted(model.predict(self.table[self.aside]), self.targets[self.aside], self.bound)))


class SidesInBlocks:
    """Of a table in blocks: fits are on blocks, and so are scores, one pass each. No pass is told of: how many there are is secret.

    Args:
        table: that was looked through.
        aside: numbers of the records that score; all others train.
        bound: as of `SidesInMemory`.
    """

    def __init__(self, table: ExaminedTable, *, aside: Index, bound: float | None) -> None:
        scored = np.zeros(table.shape[0], dtype=np.bool_)
        scored[aside] = True
        self._bound, self._aside, self._training = bound, chosen_records(table, scored), chosen_records(table, ~scored)

    def fit(self, model: Any) -> None:
        """On the blocks of one; the model then takes arrays without names, as one that was fitted on rows in memory."""
        model.fit(self._training, None)
        for step in [step for _, step in _leaves(model)] if isinstance(model, Pipeline) else [model]:
            if hasattr(step, "feature_names_in_"):
                del step.feature_names_in_

    def score(self, model: Any) -> float:
        """On the blocks of the other: a pass."""
        _, found = self._aside.examined(_counted_in, model, self._bound)
        counts, records = total(found)
        return float(counts / records)


def counted(predicted: Any, targets: Any, bound: float | None) -> Array:
    """Numbers in [0, 1], one a record: hits, or one minus the squared residual over its bound, truncated.

    Args:
        predicted, targets: shape (m,).
        bound: r0; None: both are labels.
    """
    if bound is None:
        return np.asarray(predicted == targets, dtype=np.float64)
    residuals = np.abs(np.asarray(targets, dtype=np.float64) - predicted) / bound
    return 1.0 - np.fmin(residuals, 1.0) ** 2  # what is no number counts as worthless


def _counted_in(block: Block, model: Any, bound: float | None) -> tuple[np.float64, np.float64]:
    if not len(block):
        return np.float64(0.0), np.float64(0.0)
    return counted(model.predict(block.features), targets_of(block), bound).sum(), np.float64(len(block))


def refuse_steps_in_memory(estimator: Any) -> None:
    """Refuse a pipeline with steps that transform arrays only."""
    private = {id(step) for step in private_steps(estimator).values()}
    for name, step in _leaves(estimator) if isinstance(estimator, Pipeline) else ():
        if id(step) not in private and step is not None and step != "passthrough":
            raise InputError(
                f"estimator: step {name!r}, {type(step).__name__}, transforms arrays in memory, and X is a table in blocks.",
                source=f"step {name!r} of the pipeline",
                remedy="transform the table by it before, such as by frame.map_partitions, and leave the step out",
            )


def _leaves(pipeline: Pipeline) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, step in pipeline.steps:
        found += _leaves(step) if isinstance(step, Pipeline) else [(name, step)]
    return found
