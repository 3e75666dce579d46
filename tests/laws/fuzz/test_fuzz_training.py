"""A short part of `make fuzz`: random models on neighbouring data sets, and that the search would find what it searches for."""

from __future__ import annotations

import pytest
from fuzz_training import examine, outcomes
from how_many import by_night
from random_models import MIXING, random_case

from lethe.train.clip import sums


@pytest.mark.slow
def test_no_record_moves_a_random_model_by_more_than_its_bound() -> None:
    trained, count = 0, 48 if by_night() else 6
    for case, outcome in outcomes(range(count)):
        assert not outcome.findings, (case.seed, case.description, outcome.findings)
        trained += outcome.kind == "trained"
    assert trained >= 0.6 * count  # the others mix records, or are refused


@pytest.mark.slow
def test_models_that_mix_records_are_drawn_and_refused() -> None:
    mixing = [case for case in map(random_case, range(60)) if case.mixing]
    assert {case.mixing for case in mixing} <= set(MIXING)
    assert len(mixing) >= 4
    assert all(examine(case).kind.startswith("refused") for case in mixing[:3])


@pytest.mark.nightly(by_day="test_no_record_moves_a_random_model_by_more_than_its_bound")
@pytest.mark.slow
def test_a_clipper_that_clips_to_twice_its_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = sums.clip_weights
    monkeypatch.setattr(sums, "clip_weights", lambda *args, **options: 2 * weights(*args, **options))
    found = [outcome.findings for _, outcome in outcomes(range(12))]
    assert sum(map(bool, found)) >= 3
