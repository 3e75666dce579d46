"""Records in memory and the same in blocks, for the tests of partitioned tables."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from lethe.estimators.options import EstimatorOptions
from lethe.partitions import array_table, parquet_table
from lethe.partitions.table import PartitionedTable

COLUMNS = ("age", "height", "weight", "income", "visits")
RECORDS = 1500
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "random_state": 5, "seed_noise": True}


def records(count: int = RECORDS) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Features in float32, two classes, and numbers that depend on the features."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((count, len(COLUMNS))).astype(np.float32)
    score = features @ rng.standard_normal(len(COLUMNS))
    return features, (score + rng.standard_normal(count) > 0).astype(np.int64), np.clip(score + 0.5 * rng.standard_normal(count), -5.0, 5.0)


def frame(count: int = RECORDS) -> pd.DataFrame:
    """The same with names: the features, `label`, and `amount`."""
    features, labels, amounts = records(count)
    return pd.DataFrame(features, columns=list(COLUMNS)).assign(label=labels, amount=amounts)


def owned(part: pd.DataFrame) -> pd.DataFrame:
    """With each row's person and weight: five rows of each of 300 people, in most partitions, and weights from 0 to 4."""
    number = part.index.to_numpy()
    return part.assign(person=number * 7 % 300 - 100, weight_of=number % 9 / 2.0)


def model_of(kind: Any, mechanism: str = "auto", **parameters: Any) -> Any:
    """An estimator with SETTINGS and these parameters, of which some are options."""
    options = {field.name: parameters.pop(field.name) for field in fields(EstimatorOptions) if field.name in parameters}
    return kind(options=EstimatorOptions(mechanism=mechanism, **options), **{**SETTINGS, **parameters})


def in_blocks(blocks: int, goal: str) -> PartitionedTable:
    """The records in so many blocks on two threads, with `label` or `amount` as targets."""
    features, labels, amounts = records()
    return array_table(features, labels if goal == "label" else amounts, blocks=blocks, workers=2)


def written(folder: Path, **parts: pd.DataFrame) -> PartitionedTable:
    """Frames as Parquet files of these names, in alphabetical order."""
    for name, part in parts.items():
        part.to_parquet(folder / f"{name}.parquet", index=False, row_group_size=400)
    return parquet_table(folder, workers=2)


class Payments:
    """A ledger that remembers what it was asked, in its order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Of runs."""
        verb, _, what = name.partition("_")
        if what != "run" or verb not in ("reserve", "start", "settle", "void"):
            raise AttributeError(name)

        def asked(*_: Any, **__: Any) -> Any:
            self.events.append(verb)
            return 1 if verb == "reserve" else True

        return asked

    def begin_release(self, planned: Any, *, max_slack: float | None = None) -> Any:
        del planned, max_slack
        self.events += ["reserve", "start"]
        return SimpleNamespace(settle=lambda stated: self.events.append("settle"))

    def receipt_of(self, number: int) -> str:
        return str(number)

    def resume_run(self, receipt: str, run: Any) -> int:
        return int(receipt)

    def address(self) -> dict[str, Any]:
        return {}
