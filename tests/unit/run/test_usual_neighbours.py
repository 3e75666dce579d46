"""The relation of neighbours of a run that says none, and of a file that says none."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import DESIGNS, batches

import lethe

FIELDS: dict[str, Any] = {"records": 1000, "passes": 1, "step_size": 0.5, "clip_norm": 1.0, "noise_multiplier": 4.0, "release": "all"}


@pytest.mark.parametrize("design", DESIGNS)
def test_a_run_that_says_none_means_what_other_tools_count(design: str) -> None:
    run = lethe.Run(batches=batches(design, 20), **FIELDS)
    assert run.neighbours == ("add_or_remove" if "add_or_remove" in run.batches.neighbours else "zero_out")
    assert run == lethe.Run(batches=run.batches, neighbours=run.neighbours, **FIELDS) == lethe.Run.from_document(run.to_document())
    assert run.replace(neighbours=None).neighbours == run.neighbours


@pytest.mark.parametrize("said", [{}, {"neighbours": None}, {"neighbors": None}])
def test_a_file_that_says_none_keeps_the_relation_that_costs_most(said: dict[str, Any]) -> None:
    run = lethe.Run(batches=lethe.batches.Poisson(20), **FIELDS)
    document = {name: value for name, value in run.to_document().items() if name != "neighbours"}
    read = lethe.Run.from_document({**document, **said})
    assert read.neighbours == "replace_one"
    assert lethe.certify(read, 1e-5).epsilon > lethe.certify(run, 1e-5).epsilon
