"""Which steps are probed, what is between them, the exponential fit, and the data: public ones drawn evenly, and generated ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from influence_problems import make_estimate, make_run

from lethe.influence import PublicData, SyntheticData, fit_exponential
from lethe.influence.retraining import choose_probes


@given(steps=st.integers(1, 2000), wanted=st.integers(2, 50))
def test_probes_run_from_the_first_to_the_last_step(steps: int, wanted: int) -> None:
    probes = choose_probes(steps, wanted)
    assert probes[0] == 1
    assert probes[-1] == steps
    assert (np.diff(probes) > 0).all()
    assert len(probes) <= wanted or steps < wanted
    assert len(probes) == steps if wanted >= steps else len(probes) >= 2


def test_probes_by_hand() -> None:
    assert list(choose_probes(16, 5)) == [1, 9, 13, 15, 16]  # 16, 8, 4, 2, 1 steps left
    assert list(choose_probes(32)) == list(range(1, 33))
    assert len(choose_probes(1000)) == 16
    assert list(choose_probes(9, [9, 1, 4])) == [1, 4, 9]
    assert list(choose_probes(1)) == [1]


def test_between_probes_the_logarithm_is_straight() -> None:
    influence = make_estimate([1.0, 4.0, 1.0], probes=[1, 3, 6]).influence
    expected = np.array([1.0, 2.0, 4.0, 4.0 ** (2 / 3), 4.0 ** (1 / 3), 1.0]) / 4
    assert influence.values(6) == pytest.approx(expected, rel=1e-12)
    assert influence.basis == "synthetic"


@given(rate=st.floats(0.5, 1.5), factor=st.floats(1e-3, 1e3))
def test_an_exponential_is_found_again(rate: float, factor: float) -> None:
    weights = factor * rate ** (20.0 - np.arange(1, 21))
    influence = fit_exponential(make_estimate(weights))
    assert influence.rate == pytest.approx(rate, rel=1e-10)
    assert "R^2 = 1.0000, 0% of 20 entries left out" in influence.detail
    assert influence.values(20) == pytest.approx(weights / weights.max(), rel=1e-8)


def test_the_fit_is_numpy_s_and_leaves_out_what_is_not_positive() -> None:
    weights = np.array([1.0, 1.5, -0.2, 2.0, 0.0, 5.0, 4.0, 9.0])
    kept = weights > 0
    steps = np.arange(1, 9)[kept]
    slope, intercept = np.polyfit(steps, np.log(weights[kept]), 1)
    unexplained = ((np.log(weights[kept]) - slope * steps - intercept) ** 2).sum()
    r_squared = 1 - unexplained / ((np.log(weights[kept]) - np.log(weights[kept]).mean()) ** 2).sum()
    influence = fit_exponential(make_estimate(weights))
    assert influence.rate == pytest.approx(np.exp(-slope), rel=1e-12)
    assert f"R^2 = {r_squared:.4f}, 25% of 8 entries left out" in influence.detail
    assert influence.basis == "synthetic"


def test_more_public_records_than_needed_are_thinned_out_without_replacement() -> None:
    data = PublicData(np.arange(100.0).reshape(-1, 1), np.arange(100.0) * 2, statement="made up")
    records = data.records(make_run())
    assert records.features.shape == (24, 1)
    assert len(np.unique(records.features)) == 24
    assert (records.targets == 2 * records.features[:, 0]).all()
    assert records.features.max() >= 24  # not the first 24
    assert (records.features == data.records(make_run()).features).all()


def test_fewer_public_records_than_needed_are_repeated_evenly() -> None:
    data = PublicData(np.arange(7.0).reshape(-1, 1), np.arange(7.0), statement="made up")
    records = data.records(make_run())
    counts = np.unique(records.targets, return_counts=True)[1]
    assert sorted(counts) == [3, 3, 3, 3, 4, 4, 4]
    assert (records.targets == records.features[:, 0]).all()
    assert (np.diff(records.targets) < 0).any()  # shuffled: fixed batches must not be copies of one record


@pytest.mark.parametrize(("kind", "classes"), [("least_squares", None), ("logistic_regression", None), ("softmax_regression", 4)])
def test_synthetic_data_are_made_for_the_run(kind: str, classes: int | None) -> None:
    run = make_run(kind, records=2000)
    records = SyntheticData(columns=10, classes=classes, seed=3).records(run)
    norms = np.linalg.norm(records.features, axis=1)
    assert records.features.shape == (2000, 10)
    assert norms.max() <= 1.5 * (1 + 1e-15)
    assert 0.3 < (norms < 1.4999).mean() < 0.7  # about half are shorter: the mean squared norm before projection is R^2
    again = SyntheticData(columns=10, classes=classes, seed=3).records(run)
    assert (again.features == records.features).all()
    assert (again.targets == records.targets).all()
    assert (SyntheticData(columns=10, classes=classes, seed=4).records(run).features != records.features).any()
    if kind == "least_squares":
        assert 0.9 < (np.abs(records.targets) < 50).mean() < 1.0  # B / 6 is about one standard deviation
    else:
        assert set(records.targets) == set(range(classes or 2))


def test_decay_is_the_spectrum() -> None:
    """Standard deviations fall like 1/j, so the first of five has 1/25 of the last's reciprocal variance; chi-square, 20 000 records."""
    run = make_run(records=20_000, loss={"kind": "least_squares", "feature_norm": 1e3, "residual_bound": 1.0})
    deviations = SyntheticData(columns=5, seed=0, decay=1.0).records(run).features.std(axis=0)
    # Projection of long rows shrinks the first column most.
    assert 4.0 < deviations[0] / deviations[4] < 5.05
    assert deviations[1] / deviations[4] == pytest.approx(2.5, rel=0.15)
