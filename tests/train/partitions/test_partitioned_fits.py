"""Every estimator on tables in blocks: the numbers, the cost and the findings of the same fit in memory, however the records are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cluster_fits import FITS, HERE, STORED, Owned
from partitioned_records import in_blocks, records

from lethe.estimators import PrivateSearch
from lethe.estimators.choice import run_shapes
from lethe.partitions.table import PartitionedTable

ESTIMATORS = {name: fit for name, fit in {**FITS, **STORED, **HERE}.items() if fit[0] is not Owned}


def released(fitted: Any) -> dict[str, Any]:
    """All numbers that a fit sets, what it costs and what that rests on."""
    model = fitted.best_estimator_ if isinstance(fitted, PrivateSearch) else fitted
    numbers = {name: value for name, value in vars(model).items() if name.endswith("_") and getattr(value, "dtype", None) == np.float64}
    run = getattr(model, "run_", None)
    steps = None if run is None else (run.batches, run.total_steps, run.noise_multiplier)
    return {**numbers, "statement": fitted.statement_, "epsilon": fitted.epsilon_, "steps": steps}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_in_blocks_is_the_fit_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, goal = ESTIMATORS[name]
    parts = [make().fit(in_blocks(blocks, goal), None) for blocks in ((1, 7, 1600) if name in ("adassp", "clipper") else (1, 7))]
    features, labels, amounts = records()
    if name not in FITS and not name.startswith("search"):  # in memory in the stored order too, and in as many batches as blocks may have
        drawn = type(make())._randomness
        monkeypatch.setattr(type(make()), "_randomness", lambda self, count, **more: _in_order(drawn(self, count, **more), count))
        monkeypatch.setattr(run_shapes, "_MOST_BATCHES_IN_BLOCKS", 10**9)
        monkeypatch.setattr(run_shapes, "_BATCHES", tuple(count for count in run_shapes._BATCHES if count <= 20))
        run_shapes.best_shape.cache_clear()
    expected = make().fit(features, labels if goal == "label" else amounts)
    run_shapes.best_shape.cache_clear()
    for found in parts:
        one, other = released(found), released(expected)
        assert one.keys() == other.keys()
        for what, value in other.items():
            if isinstance(value, np.ndarray | np.float64):
                np.testing.assert_allclose(one[what], value, rtol=0.0, atol=1e-9, err_msg=what)
        assert (one["epsilon"], one["steps"]) == (other["epsilon"], other["steps"])
        assert one["statement"].planned == other["statement"].planned
        # Beside those of memory one more is declared where batches are secret: workers are told whose turn it is.
        assert [held for held in one["statement"].findings if held.name != "workers"] == list(other["statement"].findings)
        if hasattr(found, "transform"):
            table, rows = found.transform(in_blocks(7, goal)), expected.transform(features)
            assert isinstance(table, PartitionedTable)
            got = np.concatenate(table.examined(lambda block: block.features)[1])
            np.testing.assert_allclose(got, rows, rtol=0.0, atol=1e-6 if rows.dtype == np.float32 else 1e-9)


def _in_order(randomness: Any, count: int) -> Any:
    return replace(randomness, order=np.arange(count)) if hasattr(randomness, "order") else randomness
