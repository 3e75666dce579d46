"""Frames of pandas and polars: the same fit as of the array, the names kept, other columns refused."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from frame_cases import (
    CLASSIFIERS,
    FRAMES,
    MADE,
    NAMES,
    PRIVATE,
    PUBLIC,
    checked,
    data,
    in_pandas,
    plain,
    released,
)
from sklearn import config_context

X, Y = data()


def results(model: Any, table: Any) -> list[Any]:
    """What a fitted model does with rows."""
    return [getattr(model, name)(table) for name in ("predict", "transform", "decision_function") if hasattr(model, name)]


def test_every_public_estimator_is_here() -> None:
    assert set(MADE) == PUBLIC


@pytest.mark.sampled(10)
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", MADE)
def test_a_frame_gives_the_fit_of_its_array(name: str, frame: str) -> None:
    table = FRAMES[frame](X)
    model = MADE[name]().fit(table, pl.Series(Y) if frame.startswith("polars") else pd.Series(Y))
    assert model.feature_names_in_.tolist() == NAMES
    assert model.n_features_in_ == 3
    found, wanted = released(model), released(plain(name))
    assert found.keys() == wanted.keys()
    assert found.keys() & {"coef_", "best coef_", "mean_", "low_"} or name not in PRIVATE
    for key, value in found.items():
        np.testing.assert_allclose(value, wanted[key], rtol=1e-9, atol=1e-12)  # the layout in memory changes the order of sums
    for one, other in zip(results(model, table), results(checked(name), in_pandas(X)), strict=True):
        rounding = 1e-6 if np.asarray(one).dtype == np.float32 else 1e-9  # a step that gives records back in the type they came in
        np.testing.assert_allclose(one, other, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("name", sorted(set(MADE) - {"PrivateMean"}))
@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_other_columns_than_were_fitted_are_refused(name: str, frame: str) -> None:
    model, table = checked(name), FRAMES[frame](X)
    with pytest.raises(ValueError, match="same order"):
        results(model, table[["c", "a", "b"]])
    with pytest.raises(ValueError, match="now missing:\n- c"):
        results(model, table[["a", "b"]])
    more = in_pandas(X).assign(d="text") if frame == "pandas" else table.with_columns(d=pl.lit("text"))
    with pytest.raises(ValueError, match="unseen at fit time:\n- d"):
        results(model, more)
    with pytest.warns(UserWarning, match="valid feature names"):
        results(model, X)


LABELS = {
    "Series": pd.Series(Y, index=np.arange(len(Y))[::-1]),
    "nullable": pd.Series(Y, dtype="Int64"),
    "arrow": pd.Series(Y, dtype="int64[pyarrow]"),
    "boolean": pd.Series(Y == 1, dtype="boolean"),
    "category": pd.Series(Y).astype("category"),
    "polars": pl.Series(Y),
    "polars bool": pl.Series(Y == 1),
    "list": Y.tolist(),
}
TEXT = np.where(Y == 1, "yes", "no")
TEXTS = {
    "Series": pd.Series(TEXT),
    "object": pd.Series(TEXT, dtype=object),
    "arrow": pd.Series(TEXT, dtype="string[pyarrow]"),
    "category": pd.Series(TEXT).astype("category"),
    "polars": pl.Series(TEXT),
    "polars categorical": pl.Series(TEXT).cast(pl.Categorical),
    "polars enum": pl.Series(TEXT, dtype=pl.Enum(["yes", "no"])),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("form", LABELS)
@pytest.mark.parametrize("name", [*CLASSIFIERS, "Ridge", "HeavyTailedLinearRegression"])
def test_targets_may_come_in_any_column(name: str, form: str) -> None:
    np.testing.assert_allclose(results(MADE[name]().fit(X, LABELS[form]), X)[-1], results(plain(name), X)[-1], rtol=1e-9)


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("declared", [None, ["no", "yes"], pd.Index(["yes", "no"]), pl.Series(["no", "yes"])], ids=type)
def test_labels_may_be_text_in_any_column(form: str, declared: Any) -> None:
    model = MADE["LogisticRegression"]().set_params(classes=declared).fit(X, TEXTS[form])
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(model.coef_, checked("LogisticRegression").coef_, rtol=1e-9)
    assert model.score(X, TEXTS[form]) > 0.5


def test_trusting_the_data_lets_no_missing_value_in() -> None:
    broken = np.where(X.max() == X, np.nan, X)
    with config_context(assume_finite=True), pytest.raises(ValueError, match="NaN"):
        MADE["LogisticRegression"]().fit(broken, Y)
