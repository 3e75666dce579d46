"""A short part of `make fuzz`: random runs and random models, and that the search would find what it searches for."""

import pytest
from fuzz_accounting import exact_delta, exact_law, fuzz
from fuzz_training import examine, outcomes
from helpers import make_run
from how_many import by_night
from random_models import MIXING, random_case

import lethe
from lethe.train.clip import sums


@pytest.mark.filterwarnings("ignore::lethe.errors.LargeDeltaWarning")
def test_no_certificate_says_less_than_linear_losses_reveal() -> None:
    count = 400 if by_night() else 40
    counts, wrong = fuzz(1_000_000, count)
    assert wrong == []
    assert counts["compared with a truth"] > count / 10


@pytest.mark.parametrize("design", [{"design": "full"}, {"design": "cyclic", "size": 10}])
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_an_epsilon_one_per_cent_too_small_is_noticed(design: dict[str, object], neighbours: str) -> None:
    """Linear losses exhaust full batches, and one pass of cyclic ones whose noise is at its end."""
    run = make_run(
        batches=design,
        passes=1,
        loss={"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": 1.0},
        clip_norm=1.0,
        noise_at="pass_ends",
    )
    run = run.replace(noise_multiplier=2.0, neighbours=neighbours)
    law = exact_law(run)
    assert law is not None
    epsilon = lethe.certify(run, 1e-3).epsilon
    assert exact_delta(run, law, epsilon) <= 1e-3
    assert exact_delta(run, law, 0.99 * epsilon) > 1e-3 * (1 + 1e-3)


def test_no_record_moves_a_random_model_by_more_than_its_bound() -> None:
    trained, count = 0, 48 if by_night() else 6
    for case, outcome in outcomes(range(count)):
        assert not outcome.findings, (case.seed, case.description, outcome.findings)
        trained += outcome.kind == "trained"
    assert trained >= 0.6 * count  # the others mix records, or are refused


def test_models_that_mix_records_are_drawn_and_refused() -> None:
    mixing = [case for case in map(random_case, range(60)) if case.mixing]
    assert {case.mixing for case in mixing} <= set(MIXING)
    assert len(mixing) >= 4
    assert all(examine(case).kind.startswith("refused") for case in mixing[:3])


@pytest.mark.nightly(by_day="test_no_record_moves_a_random_model_by_more_than_its_bound")
def test_a_clipper_that_clips_to_twice_its_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = sums.clip_weights
    monkeypatch.setattr(sums, "clip_weights", lambda *args, **options: 2 * weights(*args, **options))
    found = [outcome.findings for _, outcome in outcomes(range(12))]
    assert sum(map(bool, found)) >= 3
