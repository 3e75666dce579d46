"""What users of scikit-learn expect: its own checks, but those that privacy rules out; frames of pandas and polars; the tutorial."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from every_release import CASES, numbers_of
from excused_checks import EXCUSED, SEEDED
from how_many import by_night
from private_cases import cloned
from repository import ROOT
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import lethe.estimators as private
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.pipelines.shares import law_of_tries, one_try
from lethe.features import PublicWhitening, RandomFourierFeatures, RecordNormalizer

# Frames are tested where pandas is installed; array-API input where SCIPY_ARRAY_API is set.
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning"
)
FRESH = {"check_fit_idempotent": "it compares two fits, and the noise of each is fresh; passes with seed_noise"}
CYCLIC, PASSES = EstimatorOptions(mechanism="cyclic"), EstimatorOptions(passes=2)
MODEL = private.LogisticRegression(feature_norm=5.0, options=EstimatorOptions(mechanism="pass_ends", passes=1))
QUICK = [
    private.LogisticRegression(feature_norm=5.0, options=CYCLIC, **SEEDED),
    private.LinearSVC(**SEEDED),
    private.HeavyTailedLinearRegression(**SEEDED),
    private.HeavyTailedLogisticRegression(
        moment=5.0, smoothness=10.0, radius=5.0, options=EstimatorOptions(mechanism="accelerated"), **SEEDED
    ),
    private.PrivateMean(**SEEDED),
    private.PrivateStandardScaler(**SEEDED),
    private.PrivateStandardScaler(bounds=(-5, 20), **SEEDED),
    private.PrivateQuantileClipper(**SEEDED),
    private.PrivateQuantileClipper(tail=None, norm_quantile=0.7, **SEEDED),
    private.PrivatePCA(2, **SEEDED),
    private.PrivatePCA(feature_norm=20.0, centre=False, **SEEDED),
    private.PrivateWhitening(**SEEDED),
    private.PrivateWhitening(feature_norm=20.0, floor=0.1, **SEEDED),
    private.PrivatePCA(),
    private.PrivateStandardScaler(),
    PublicWhitening([0.5], [[4.0]]),
    private.PublicScaler(-3.0, 3.0),
    private.PublicScaler(0.0, 1.0, clip=False),
    RandomFourierFeatures(10, gamma=0.3),
    RecordNormalizer(None, groups=1),
]
LONG = [
    private.LogisticRegression(**SEEDED),
    private.SoftmaxRegression(**SEEDED),
    private.LogisticRegression(neighbours="zero_out", options=EstimatorOptions(mechanism="pass_ends"), **SEEDED),
    private.LinearRegression(**SEEDED),
    private.Ridge(options=CYCLIC, **SEEDED),
    private.Lasso(options=PASSES, **SEEDED),
    private.ElasticNet(neighbours="zero_out", options=PASSES, **SEEDED),
    private.HuberRegressor(options=CYCLIC, **SEEDED),
    private.PoissonRegressor(options=PASSES, **SEEDED),
    private.GammaRegressor(**SEEDED),
    private.PrivateSearch(MODEL, {"C": [1.0]}, tries=1.5, **SEEDED),
    private.PrivateSearch(
        make_pipeline(private.PrivateStandardScaler(bounds=(-100.0, 100.0)), MODEL), {"logisticregression__C": [1.0]}, tries=1.5, **SEEDED
    ),
]


def excused(estimator: Any) -> dict[str, str]:
    """A search takes no weights, nor does what transforms."""
    return EXCUSED if isinstance(estimator, PrivateLinearModel) else {} if getattr(estimator, "seed_noise", True) else FRESH


@pytest.mark.sampled(8)
@parametrize_with_checks(QUICK, expected_failed_checks=excused)
def test_it_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.sampled(60)
@parametrize_with_checks(LONG, expected_failed_checks=excused)
def test_what_takes_long_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


NAMES = ["a", "b", "c"]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("estimators", "regression", "private_search")}
KINDS = {type(model).__name__: name for name, (model, _) in reversed(CASES.items())}  # one case of each
X = np.round(64.0 * np.random.default_rng(0).standard_normal((200, 3))) / 64.0  # which float32 and six decimal places hold exactly
Y = (X @ [1.0, -2.0, 0.5] > 0.0).astype(np.int64)
PANDAS, POLARS = pd.DataFrame(X, columns=NAMES, index=np.random.default_rng(1).permutation(200)), pl.DataFrame(X, schema=NAMES)
FRAMES: dict[str, Any] = {
    **{f"pandas {dtype}": PANDAS.astype(dtype) for dtype in ("float64", "float32", "Float64", "float64[pyarrow]", "object")},
    "polars": POLARS,
    "polars float32": POLARS.cast(pl.Float32),
    "polars decimal": POLARS.cast(pl.Decimal(10, 6)),
    "polars arrow": pl.from_arrow(pa.table(dict(zip(NAMES, X.T, strict=True)))),
}


def fitted_to(name: str, table: Any, targets: Any = Y) -> Any:
    model = private.PublicScaler(-4.0, 4.0) if name == "PublicScaler" else cloned(CASES[KINDS[name]][0]).set_params(seed_noise=True)
    return model.fit(table, targets)


def results(model: Any, table: Any) -> list[Any]:
    """What a fitted model does with rows."""
    return [getattr(model, name)(table) for name in ("predict", "transform", "decision_function") if hasattr(model, name)]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", [*KINDS, "PublicScaler"])
def test_a_frame_gives_the_fit_of_its_array_and_keeps_the_names(name: str, frame: str) -> None:
    table = FRAMES[frame]
    model, plain = fitted_to(name, table, pl.Series(Y) if frame.startswith("polars") else pd.Series(Y)), fitted_to(name, X)
    assert (model.feature_names_in_.tolist(), model.n_features_in_) == (NAMES, 3)
    found, wanted = numbers_of(model), numbers_of(plain)
    assert found.keys() == wanted.keys()
    for key, value in found.items():
        np.testing.assert_allclose(value, wanted[key], rtol=1e-9, atol=1e-12)  # the layout in memory changes the order of sums
    for one, other in zip(results(model, table), results(plain, X), strict=True):
        rounding = 1e-6 if np.asarray(one).dtype == np.float32 else 1e-9  # a step that gives records back in the type they came in
        np.testing.assert_allclose(one, other, rtol=rounding, atol=rounding)
    if name != "PrivateMean":  # which does nothing with rows
        for other, said in ((table[["c", "a", "b"]], "same order"), (table[["a", "b"]], "now missing:\n- c")):
            with pytest.raises(ValueError, match=said):
                results(model, other)


def test_trusting_the_data_lets_no_missing_value_in() -> None:
    with config_context(assume_finite=True), pytest.raises(ValueError, match="NaN"):
        fitted_to("LogisticRegression", np.where(X.max() == X, np.nan, X))


def test_the_blocks_run_and_the_private_models_are_worth_having(capsys: pytest.CaptureFixture[str]) -> None:
    for name, page in PAGES.items():
        names: dict[str, object] = {}
        for block in re.findall(r"```python\n(.*?)```", page, flags=re.S):
            if not by_night():  # fewer records than a reader has
                block = block.replace("40_000", "12_000").replace("size=10_000", "size=4_000").replace("20_000", "6_000")
            exec(compile(block, f"{name}.md", "exec"), names)
    printed = capsys.readouterr().out
    reached = [float(number) for number in re.findall(r"accuracy (\d\.\d+)", printed)]
    (without,) = (float(number) for number in re.findall(r"without privacy (\d\.\d+)", printed))
    # Of 10 000 test records the standard error is 0.004; at epsilon = 1 on 30 000 records little is lost, on 8 000 by day somewhat more.
    assert len(reached) == 2
    assert min(reached) > without - (0.05 if by_night() else 0.1)
    assert "R squared 0.9" in printed
    assert "one record replaced by another" in printed


def test_every_mechanism_is_in_the_table_and_what_a_try_may_spend_is_as_stated() -> None:
    assert all(f"| `{name}` |" in PAGES["estimators"] for name in MECHANISMS)
    budget, law = PrivacyBudget(epsilon=1.0, delta=1e-5), law_of_tries(10.0)
    gaussian, point = (one_try(budget, law, gaussian=kind).target for kind in (True, False))
    assert f"| {gaussian.epsilon_bound:.2f} |" in PAGES["private_search"]
    assert f"| {point.epsilon_bound:.2f}, at delta = {point.delta_bound:.0e} |".replace("e-0", "e-") in PAGES["private_search"]
