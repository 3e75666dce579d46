"""Targets, labels and budgets that no estimator can use are refused, with what to do."""

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from frame_cases import CLASSIFIERS, MADE, PRIVATE, REGRESSORS, data, fit, in_pandas

import lethe.estimators as private
from lethe.errors import InputError

X, Y = data()
N = len(Y)
DAY = datetime.date(2024, 1, 1)


def without_the_first(*values: Any) -> list[Any]:
    return [None, *values[1:]]


MISSING_LABELS = {
    "float": np.where(np.arange(N) < 1, np.nan, Y),
    "Int64": pd.Series(without_the_first(*Y.tolist()), dtype="Int64"),
    "boolean": pd.Series(without_the_first(*(Y == 1).tolist()), dtype="boolean"),
    "polars": pl.Series(without_the_first(*Y.tolist())),
    "objects": np.array(without_the_first(*Y.tolist())),
    "arrow": pd.Series(without_the_first(*Y.tolist()), dtype="int64[pyarrow]"),
}
MISSING_TEXT = {
    "str": pd.Series(without_the_first(*Y.astype(str).tolist()), dtype="str"),
    "object": pd.Series(without_the_first(*Y.astype(str).tolist()), dtype=object),
    "NA": pd.Series([pd.NA, *Y[1:].astype(str).tolist()], dtype=object),
    "category": pd.Series(without_the_first(*Y.astype(str).tolist()), dtype="category"),
    "polars": pl.Series(without_the_first(*Y.astype(str).tolist())),
    "polars enum": pl.Series(without_the_first(*Y.astype(str).tolist()), dtype=pl.Enum(["0", "1"])),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", MISSING_LABELS)
@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS])
def test_missing_targets_are_refused(name: str, form: str) -> None:
    with pytest.raises(InputError, match=r"y: got missing values \(NaN or null\)"):
        fit(name, X, MISSING_LABELS[form])


@pytest.mark.parametrize("form", MISSING_TEXT)
@pytest.mark.parametrize("classes", [None, ["0", "1"]])
def test_missing_labels_of_text_are_refused(form: str, classes: Any) -> None:
    with pytest.raises(InputError, match=r"y: got missing values \(NaN or null\)"):
        MADE["LogisticRegression"]().set_params(classes=classes).fit(X, MISSING_TEXT[form])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REGRESSORS)
def test_targets_that_are_no_numbers_are_refused(name: str) -> None:
    for bad in (["1"] * N, [DAY] * N, [np.datetime64(DAY)] * N, pl.Series([DAY] * N), pd.Series([DAY] * N, dtype="datetime64[s]")):
        with pytest.raises(InputError, match=r"^y: "):
            fit(name, X, bad)
    for bad in (pd.Series(["1"] * N), pl.Series(["1"] * N), pd.Series(["x"] * N, dtype=object), pl.DataFrame({"y": [DAY] * N})):
        with pytest.raises(InputError, match=r"^y: "):
            fit(name, X, bad)
    for bad in (np.where(Y == 1, np.inf, 0.0), np.where(Y == 1, np.inf, 0.0).astype(object), np.where(Y == 1, np.longdouble("1e400"), 0.0)):
        with pytest.raises(InputError, match="y: got infinity"):
            fit(name, X, bad)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (np.where(Y == 1, "yes", "no"), [0, 1], r"y: got text, such as '(yes|no)'; the public classes are numbers: 0, 1\."),
        (Y.astype(np.uint8), ["0", "1"], r"y: got numbers, such as [01]; the public classes are text: '0', '1'\."),
        (pd.Series(Y).astype(object).where(Y == 1, "no"), None, r"y: Unknown label type: objects \(int, str\)"),
        (pd.cut(X[:, 0], 2), None, r"y: Unknown label type: objects \(Interval\)"),
        (np.where(Y == 1, np.datetime64(DAY), np.datetime64("2025")), [0, 1], "y: got dates"),
        (Y.astype(np.uint8), [0, 2], r"y\[\d+\] = 1; it is not in the public list"),
        (Y * 0, None, "y: got 1 class, 0;"),
        (Y, [0, "1", None], "classes = "),
        (Y, [0.0, 1.0, float("nan")], "classes = "),
        (Y, [[0], [1, 2]], "classes = "),
        (Y, 2, "classes = "),
    ],
)
@pytest.mark.parametrize("name", ["LogisticRegression", "LinearSVC", "HeavyTailedLogisticRegression"])
def test_labels_and_classes_that_do_not_fit_are_told_plainly(name: str, labels: Any, classes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MADE[name]().set_params(classes=classes).fit(X, labels)


def test_scikit_learn_says_the_rest() -> None:
    for table, y, message in (
        (X, None, "requires y to be passed"),
        (X, Y[:-1], "inconsistent numbers"),
        (X, X[:, 0] + 0.1, "continuous"),
        (X[:, 0], Y, "Reshape"),
        ([[1.0], [1.0, 2.0]], Y[:2], "inhomogeneous"),
        (in_pandas(X).astype(complex), Y, "Complex"),
        (X, Y * 1j, "Complex"),
    ):
        with pytest.raises(ValueError, match=message) as refusal:
            MADE["LogisticRegression"]().fit(table, y)
        assert not isinstance(refusal.value, InputError)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "bad", [{"epsilon": one} for one in ("1", True, np.True_, None, [1.0])] + [{"delta": one} for one in ("1e-5", True, b"0.1", 0)]
)
@pytest.mark.parametrize("name", PRIVATE)
def test_text_and_truth_values_are_no_budget(name: str, bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"{next(iter(bad))} = (.|\n)*From: (.|\n)*Do: "):
        MADE[name]().set_params(**bad).fit(X, Y)


@pytest.mark.parametrize("number", [np.float32(2.0), np.float64(2.0), np.int64(2), np.array(2.0), Fraction(2), Decimal(2)])
def test_numbers_of_every_type_are_a_budget(number: Any) -> None:
    model = MADE["PrivateMean"]().set_params(epsilon=number, delta=number / 10**5).fit(X)
    assert model.statement_.planned.epsilon(model.delta_) <= 2.0
    assert model.delta_ == pytest.approx(2e-5)
    steps, shares = [private.PrivateStandardScaler(), private.PrivatePCA()], [0.5, 0.5]
    pair = [[step.epsilon for step in private.split_budget(steps, one, 1e-5, shares=shares)] for one in (number, 2.0)]
    assert pair[0] == pair[1]


def test_a_split_takes_no_text_either() -> None:
    for epsilon, delta in (("1", 1e-5), (True, 1e-5), (1.0, "1e-5"), (1.0, True), (1.0, None)):
        with pytest.raises(InputError, match=r"epsilon|delta"):
            private.split_budget([private.PrivatePCA()] * 2, epsilon, delta, shares=[0.5, 0.5])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS])
@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, pl.DataFrame], ids=["numpy", "pandas", "polars"])
def test_several_targets_are_answered_with_one_model_for_each_and_what_that_costs(name: str, form: Any) -> None:
    outer = "MultiOutputRegressor" if name in REGRESSORS else "MultiOutputClassifier"
    with pytest.raises(InputError, match=r"y: got 3 columns; a model has one target") as caught:
        fit(name, X, form(np.stack([Y, 1 - Y, Y], axis=1)))
    assert f"sklearn.multioutput.{outer}(model)" in (caught.value.remedy or "")
    assert "privacy_of(fitted.estimators_)" in (caught.value.remedy or "")
