import numpy as np
import pytest
from influence_problems import make_run

from lethe.influence import PublicData, SyntheticData


def test_public_data_are_a_copy_that_cannot_be_changed() -> None:
    features = np.ones((2, 2))
    data = PublicData(features, [0.0, 1.0], statement="made up")  # pyright: ignore[reportArgumentType]
    features[0, 0] = 7.0
    assert data.features[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        data.features[0, 0] = 7.0


def test_more_public_records_than_needed_are_thinned_out_without_replacement() -> None:
    data = PublicData(np.arange(100.0).reshape(-1, 1), np.arange(100.0) * 2, statement="made up")
    records = data.records(make_run())
    assert records.features.shape == (24, 1)
    assert len(np.unique(records.features)) == 24
    assert (records.targets == 2 * records.features[:, 0]).all()
    assert records.features.max() >= 24  # not the first 24
    assert (records.features == data.records(make_run()).features).all()
    other = PublicData(data.features, data.targets, statement="made up", seed=1)
    assert (records.features != other.records(make_run()).features).any()


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


@pytest.mark.parametrize(("kind", "classes"), [("logistic_regression", None), ("softmax_regression", 4)])
def test_a_clear_teacher_can_be_learnt(kind: str, classes: int | None) -> None:
    """Least squares on one-hot labels tells most labels; chance is 1/2 and 1/4."""
    records = SyntheticData(columns=10, classes=classes, seed=3, signal=20.0).records(make_run(kind, records=2000))
    onehot = np.eye(classes or 2)[records.targets.astype(int)]
    weights = np.linalg.lstsq(records.features, onehot - onehot.mean(axis=0), rcond=None)[0]
    assert ((records.features @ weights).argmax(axis=1) == records.targets).mean() > 0.8


def test_decay_is_the_spectrum() -> None:
    """Standard deviations fall like 1/j, so the first of five has 1/25 of the last's reciprocal variance; chi-square, 20 000 records."""
    run = make_run(records=20_000, loss={"kind": "least_squares", "feature_norm": 1e3, "residual_bound": 1.0})
    deviations = SyntheticData(columns=5, seed=0, decay=1.0).records(run).features.std(axis=0)
    # Projection of long rows shrinks the first column most.
    assert 4.0 < deviations[0] / deviations[4] < 5.05
    assert deviations[1] / deviations[4] == pytest.approx(2.5, rel=0.15)
