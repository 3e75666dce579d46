"""Probes, what is between them, the exponential fit and the data; and what estimators of influence refuse, private data above all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from influence_problems import make_data, make_estimate, make_run

import lethe
from lethe.errors import LetheError
from lethe.influence import PublicData, PublicTrainer, SyntheticData, adjoint_influence, fit_exponential, quadratic_influence
from lethe.influence import retraining_influence as retraining
from lethe.influence.quadratic import PublicCurvatures
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


GOOD: dict[str, Any] = {"repeats": 2, "seed": 0}
ESTIMATORS: dict[str, Callable[[Any, Any], Any]] = {
    "quadratic": quadratic_influence,
    "retraining": lambda run, data: retraining(run, data, **GOOD),
    "adjoint": lambda run, data: adjoint_influence(run, data, **GOOD),
}
PRIVATE = [np.ones((24, 3)), [[1.0, 2.0]], (np.ones((24, 3)), np.ones(24)), torch.ones(24, 3), None, "data.csv"]


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("private", PRIVATE)
def test_plain_data_are_refused_with_the_reason(name: str, private: Any) -> None:
    with pytest.raises(LetheError, match="no certificate covers noise placed by private data") as caught:
        ESTIMATORS[name](make_run(), private)
    assert caught.value.remedy is not None
    assert "SyntheticData" in caught.value.remedy
    assert "statement" in caught.value.remedy
    with pytest.raises(TypeError, match="statement"):
        PublicData(np.ones((2, 2)), np.ones(2))  # pyright: ignore[reportCallIssue]


def public(features: Any = ((1.0, 2.0), (3.0, 4.0)), targets: Any = (0.0, 1.0), **changes: Any) -> PublicData:
    return PublicData(features, targets, **{"statement": "made up", **changes})


def curvatures(eigenvalues: Any, statement: Any = "assumed") -> PublicCurvatures:
    return PublicCurvatures(eigenvalues, statement=statement)


def trainer(train: Any = lambda noise_stds, seed: 0.0, **changes: Any) -> PublicTrainer:
    return PublicTrainer(train=train, **{"statement": "no data at all", **changes})


def hinge(width: float) -> Any:
    return make_run(loss={"kind": "smoothed_hinge", "feature_norm": 1.5, "width": width}, step_size=2.0)


AVERAGED = make_run(batches=lethe.batches.Cyclic(8), passes=2, noise_at="pass_ends", pass_weights=1.0)
CUT = make_run(loss={"kind": "truncated_logistic_regression", "feature_norm": 1.5, "cut": 0.5})
HUGE = {"kind": "least_squares", "feature_norm": 1.5, "residual_bound": 1e150}
CHANCE = np.random.default_rng(0)
CALLS: list[tuple[str, Callable[[], Any]]] = [
    *[("reason why", lambda given=given: public(statement=given)) for given in ("", "  \n", None, 3)],
    *[("shapes", lambda shape=shape: public(*map(np.ones, shape))) for shape in ((3, 3), ((3, 2), 2), ((0, 2), 0))],
    (r"features\[0, 1\]", lambda: public([[1.0, np.nan]], [1.0])),
    (r"targets\[0\]", lambda: public([[1.0, 2.0]], [np.inf])),
    ("features", lambda: public([["a"]], [1.0])),
    ("features: unknown key", lambda: SyntheticData(columns=2, seed=0, features=np.ones((2, 2)))),
    *[
        (name, lambda name=name, value=value: SyntheticData(**{"columns": 2, "seed": 0, name: value}))
        for name, value in (
            ("columns", 0),
            ("columns", 2.5),
            ("seed", -1),
            ("decay", np.nan),
            ("signal", 0.0),
            ("classes", 1),
            ("seed", True),
        )
    ],
    ("classes", lambda: SyntheticData(columns=2, seed=0).records(make_run("softmax_regression"))),
    ("classes", lambda: SyntheticData(columns=2, seed=0, classes=3).records(make_run("least_squares"))),
    ("classes", lambda: quadratic_influence(make_run("softmax_regression"), make_data("logistic_regression"))),
    *[
        ("eigenvalues", lambda wrong=wrong: curvatures(wrong))
        for wrong in ([], [0.0], [-1.0, 2.0], [np.nan], [np.inf], [[1.0]], ["a"], True)
    ],
    ("statement", lambda: curvatures(np.ones(2), " ")),
    (r"lethe\.Run", lambda: quadratic_influence(np.ones(3), curvatures([1.0]))),  # pyright: ignore[reportArgumentType]
    ("ridge alone", lambda: quadratic_influence(make_run(regulariser={"kind": "l1", "strength": 0.1}), curvatures([1.0]))),
    ("a loss of a linear model", lambda: quadratic_influence(make_run(loss={"kind": "unknown", "gradient_bound": 1.0}), make_data())),
    ("pass_weights", lambda: quadratic_influence(AVERAGED, SyntheticData(columns=2, seed=0))),
    ("smoothed_hinge, which has no curvature", lambda: quadratic_influence(hinge(0.5), make_data("logistic_regression"))),
    *[
        (name, lambda name=name, value=value: adjoint_influence(make_run(), make_data(), **{**GOOD, name: value}))
        for name, value in (("repeats", 1), ("directions", 0), ("directions", 1.5), ("seed", None))
    ],
    ("ball", lambda: adjoint_influence(make_run(regulariser=[{"kind": "ball", "radius": 1.0}]), make_data(), **GOOD)),
    ("no noise yet", lambda: adjoint_influence(make_run(noise_multiplier=None), make_data(), **GOOD)),
    ("pass_weights", lambda: adjoint_influence(AVERAGED, make_data(), **GOOD)),
    ("regression; its third derivative is not known", lambda: adjoint_influence(CUT, make_data("logistic_regression"), **GOOD)),
    *[
        (name, lambda name=name, value=value: retraining(make_run(), make_data(), **{**GOOD, name: value}))
        for name, value in (
            *(("repeats", 1), ("repeats", True), ("repeats", 2.0), ("seed", -1), ("probes", 1)),
            *(("probes", [0, 2]), ("probes", [7]), ("probes", []), ("probes", "all")),
        )
    ],
    ("no noise yet", lambda: retraining(make_run(noise_multiplier=None), make_data(), **GOOD)),
    ("0 at every step", lambda: retraining(make_run(noise_multiplier=0.0), make_data(), **GOOD)),
    ("overflowed", lambda: retraining(make_run(step_size=1e60, noise_multiplier=1e-140, loss=HUGE), make_data(), **GOOD)),
    ("two trainings with the same noise", lambda: retraining(make_run(), trainer(lambda stds, seed: float(CHANCE.normal())), **GOOD)),
    ("returned nan", lambda: retraining(make_run(), trainer(lambda stds, seed: np.nan), **GOOD)),
    ("statement", lambda: trainer(statement="")),
    ("function of", lambda: trainer(3)),
    (r"step 2 has -0\.1", lambda: make_estimate([1.0, -0.1, 2.0]).influence),
    ("steps 2 to 3 of 5", lambda: make_estimate([1.0, 2.0], probes=[2, 3], steps=5).influence),
    ("1 of 3 are above 0", lambda: fit_exponential(make_estimate([1.0, -1.0, 0.0]))),
    ("estimate", lambda: fit_exponential(np.ones(3))),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("words", "call"), CALLS, ids=[f"{number}, {words}" for number, (words, _) in enumerate(CALLS)])
def test_what_cannot_be_used_is_refused_by_name(words: str, call: Callable[[], Any]) -> None:
    with pytest.raises(LetheError, match=words):
        call()
