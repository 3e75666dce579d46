"""Totals: files of nothing, documents too deep, and events beyond all counts."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import lethe
from lethe.accounting.totals import Total
from lethe.calculus.sampled.gaussian import SampledGaussian


def added(*parts: object) -> Total:
    return lethe.total(list(parts), delta=1e-6, neighbours="replace_one")


def test_a_total_of_nothing_is_refused() -> None:
    content = {**added(lethe.guarantees.GDP(0.5)).to_dict(), "parts": [], "epsilon": 0.0}
    with pytest.raises(lethe.InputError, match="it has no parts"):
        Total.from_dict(content)


def test_a_document_too_deep_to_be_read_is_refused(tmp_path: Path) -> None:
    inner: dict[str, Any] = {"kind": "gdp", "mu": 0.1}
    for _ in range(400):
        inner = {"kind": "tightest", "parts": [inner]}
    (tmp_path / "deep.json").write_text(json.dumps(inner))
    with pytest.raises(lethe.InputError):
        added(tmp_path / "deep.json")


def test_events_repeated_beyond_all_counts_are_refused() -> None:
    dp = pytest.importorskip("dp_accounting")
    for count in (10**16, 10**400):
        with pytest.raises(lethe.InputError, match="counts need to be whole numbers from 1 to 1e15"):
            added(dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), count))


@pytest.mark.slow
def test_a_sample_that_is_not_empty_costs_something() -> None:
    dp = pytest.importorskip("dp_accounting")
    event = dp.SampledWithoutReplacementDpEvent(10**330, 1, dp.GaussianDpEvent(1.0))
    assert added(event).guarantee.delta(0.0) > 0.0
    assert added(event).guarantee.epsilon(0.0) == math.inf
    third = dp.SampledWithoutReplacementDpEvent(3, 1, dp.GaussianDpEvent(1.0))
    step = added(third).guarantee
    assert isinstance(step, SampledGaussian)
    assert Fraction(step.sampling_probability) >= Fraction(1, 3)
