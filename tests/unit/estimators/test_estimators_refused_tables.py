"""What no estimator can take in is refused by name, with what to do, whoever made the frame."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from frame_cases import FRAMES, MADE, PRIVATE, checked, data, fit, in_pandas, plain
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from lethe.errors import InputError
from lethe.estimators.inputs.faults import is_missing

X, Y = data()
N = len(Y)
DAY = datetime.date(2024, 1, 1)
DATES, CATEGORIES = "public unit", "OneHotEncoder"


def with_column(frame: str, values: Any, dtype: Any) -> Any:
    if frame == "pandas":
        table = in_pandas(X)
        return table.assign(d=pd.Series(values, dtype=dtype).set_axis(table.index))
    return FRAMES["polars"](X).with_columns(pl.Series(values, dtype=dtype).alias("d"))


NO_NUMBERS = {
    "str": ("pandas", ["x"] * N, "str", "'d' (str)", CATEGORIES),
    "numbers as text": ("pandas", ["1"] * N, "str", "'d' (str)", CATEGORIES),
    "arrow text": ("pandas", ["x"] * N, "string[pyarrow]", "'d' (string)", CATEGORIES),
    "category": ("pandas", ["x"] * N, "category", "'d' (categories of str)", CATEGORIES),
    "intervals": ("pandas", pd.cut(X[:, 0], 3), None, "'d' (categories of interval", CATEGORIES),
    "datetime": ("pandas", [DAY] * N, "datetime64[us]", "'d' (datetime64[us])", DATES),
    "zoned": ("pandas", [DAY] * N, "datetime64[us, UTC]", "'d' (datetime64[us, UTC])", DATES),
    "arrow date": ("pandas", [DAY] * N, pd.ArrowDtype(pa.date32()), "'d' (date32[day][pyarrow])", DATES),
    "timedelta": ("pandas", [1] * N, "timedelta64[s]", "'d' (timedelta64[s])", DATES),
    "period": ("pandas", pd.period_range("2024", periods=N, freq="D"), None, "'d' (period[D])", DATES),
    "polars text": ("polars", ["x"] * N, pl.String, "'d' (String)", CATEGORIES),
    "polars categorical": ("polars", ["x"] * N, pl.Categorical, "'d' (Categorical)", CATEGORIES),
    "polars enum": ("polars", ["x"] * N, pl.Enum(["x"]), "'d' (categories of", CATEGORIES),
    "polars date": ("polars", [DAY] * N, pl.Date, "'d' (Date)", DATES),
    "polars datetime": ("polars", [DAY] * N, pl.Datetime, "'d' (Datetime)", DATES),
    "polars duration": ("polars", [datetime.timedelta(1)] * N, pl.Duration, "'d' (Duration)", DATES),
    "polars time": ("polars", [datetime.time(1)] * N, pl.Time, "'d' (Time)", DATES),
    "polars list": ("polars", [[1]] * N, pl.List(pl.Int8), "'d' (List)", CATEGORIES),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", NO_NUMBERS)
@pytest.mark.parametrize("name", MADE)
def test_a_column_of_no_numbers_is_named_with_its_dtype(name: str, case: str) -> None:
    frame, values, dtype, shown, remedy = NO_NUMBERS[case]
    with pytest.raises(InputError) as refusal:
        fit(name, with_column(frame, values, dtype))
    assert shown in refusal.value.what
    assert "'a'" not in refusal.value.what
    assert remedy in (refusal.value.remedy or "")
    assert ({DATES, CATEGORIES} - {remedy}).pop() not in (refusal.value.remedy or "")


@pytest.mark.slow
def test_columns_that_hold_numbers_of_another_kind_are_taken() -> None:
    numbers: dict[str, tuple[str, Any, Any]] = {
        "bool": ("pandas", Y == 1, None),
        "boolean": ("pandas", Y == 1, "boolean"),
        "category of numbers": ("pandas", Y, "category"),
        "Decimal": ("pandas", [Decimal(int(y)) for y in Y], "object"),
        "arrow decimal": ("pandas", [Decimal(int(y)) for y in Y], pd.ArrowDtype(pa.decimal128(5, 2))),
        "arrow bool": ("pandas", Y == 1, "bool[pyarrow]"),
        "uint8": ("pandas", Y, "uint8"),
        "polars bool": ("polars", Y == 1, pl.Boolean),
        "polars uint8": ("polars", Y, pl.UInt8),
        "polars int128": ("polars", Y, pl.Int128),
    }
    wanted = fit("LogisticRegression", np.column_stack([X, Y])).coef_
    for frame, values, dtype in numbers.values():
        np.testing.assert_allclose(fit("LogisticRegression", with_column(frame, values, dtype)).coef_, wanted, rtol=1e-9)
    table = pa.table({name: X[:, place] for place, name in enumerate("abc")})
    np.testing.assert_allclose(fit("LogisticRegression", table).coef_, plain("LogisticRegression").coef_, rtol=1e-9)
    with pytest.raises(InputError, match=r"'d' \(date32\[day\]\)"):
        fit("LogisticRegression", table.append_column("d", pa.array([DAY] * N)))


@pytest.mark.parametrize("entry", ["x", DAY, pd.Timestamp(DAY), {"a": 1}, 10**400])
def test_objects_that_are_no_numbers_are_named_when_they_are_read(entry: Any) -> None:
    with pytest.raises(InputError, match=r"cannot be read as numbers in the column 'd'\."):
        fit("LogisticRegression", with_column("pandas", [entry, None, *Y[2:].tolist()], "object"))


def test_arrays_of_text_or_dates_are_refused() -> None:
    for dtype in ("<U8", "S8", "datetime64[D]", "timedelta64[D]"):
        with pytest.raises(InputError, match="it needs numbers"):
            fit("LogisticRegression", X.astype(np.int64).astype(dtype))
    objects = X.astype(object)
    objects[3, 1] = "x"
    with pytest.raises(InputError, match="cannot be read as numbers in the column 1, counted from 0"):
        fit("LogisticRegression", objects)
    objects[3, 1] = {}
    with pytest.raises(TypeError, match="not 'dict'"):  # scikit-learn's own
        fit("LogisticRegression", objects)
    objects[3, 1] = pd.NA
    with pytest.raises(InputError, match=r"NaN or null\) in the column 1, counted from 0"):
        fit("LogisticRegression", objects)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", PRIVATE)
def test_missing_values_are_refused_by_column_with_a_remedy_that_learns_nothing(name: str, frame: str) -> None:
    table = FRAMES[frame](X)
    holes = table.mask(table > 1.5) if frame.startswith("pandas") else table.with_columns(pl.when(pl.col("c") < 1.5).then(pl.col("c")))
    with pytest.raises(InputError, match="'c'") as refusal:
        fit(name, holes)
    assert "NaN" in refusal.value.what
    assert ("'a'" in refusal.value.what) == frame.startswith("pandas")
    for word in ("constant", "keep_empty_features=True"):
        assert word in (refusal.value.remedy or "")
    assert "HistGradientBoosting" not in str(refusal.value)
    if name != "PrivateMean":
        model = checked(name)
        for act in ("predict", "transform"):
            if hasattr(model, act):
                with pytest.raises(InputError, match="NaN"):
                    getattr(model, act)(holes)


def test_the_remedy_works() -> None:
    table = in_pandas(X)
    filled: Any = make_pipeline(SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True), MADE["LogisticRegression"]())
    filled.fit(table.mask(table > 1.5).assign(b=np.nan), Y)
    wanted = np.where(X > 1.5, 0.0, X) * [1.0, 0.0, 1.0]
    np.testing.assert_allclose(filled[-1].coef_, fit("LogisticRegression", wanted).coef_, rtol=1e-9)


@pytest.mark.parametrize("name", MADE)
def test_infinity_is_refused_by_column(name: str) -> None:
    for table in (np.where(X[3, 1] == X, np.inf, X), np.where(X[3, 1] == X, -np.inf, X).tolist()):
        with pytest.raises(InputError, match=r"X: got infinity in the columns? .*1.*, counted from 0"):
            fit(name, table)
    with pytest.raises(InputError, match=r"X: got infinity in the column 'b'\."):
        fit(name, in_pandas(X).assign(b=np.inf))


def test_infinity_is_told_where_missing_values_are_taken() -> None:
    with pytest.raises(InputError, match=r"X: got infinity in the column 'b'\."):
        fit("PublicScaler", in_pandas(X).assign(a=np.nan, b=np.inf))
    assert np.isnan(fit("PublicScaler", in_pandas(X)).transform(in_pandas(X).assign(a=np.nan))[:, 0]).all()


def test_entries_of_sparse_tables_are_refused_by_column() -> None:
    for bad, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        for make in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
            with pytest.raises(InputError, match=f"{word}.*in the column 2, counted from 0"):
                fit("LogisticRegression", make(np.where(np.arange(3) == 2, bad, X)))


@pytest.mark.parametrize("name", ["PrivateStandardScaler", "PrivatePCA"])
def test_the_way_back_refuses_the_same(name: str) -> None:
    model = plain(name)
    rows = pd.DataFrame(model.transform(X))
    with pytest.raises(InputError, match=r"NaN.*in the column 1\."):
        model.inverse_transform(rows.where(np.ones(N)[:, None] * np.arange(rows.shape[1]) != 1))
    with pytest.raises(InputError, match="datetime64"):
        model.inverse_transform(rows.astype("int64").astype("datetime64[s]"))


@pytest.mark.parametrize("name", MADE)
def test_names_that_name_no_column_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="more than one column is named 'a'"):
        fit(name, pd.DataFrame(X, columns=["a", "a", "b"]))
    with pytest.raises(TypeError, match="only supported if all input features have string names"):
        fit(name, pd.DataFrame(X, columns=["a", 1, 2]))
    with pytest.raises(InputError, match=r"X: got a LazyFrame(.|\n)*\.collect\(\)"):
        fit(name, FRAMES["polars"](X).lazy())
    if hasattr(checked(name), "predict"):
        with pytest.raises(InputError, match="LazyFrame"):
            checked(name).predict(FRAMES["polars"](X).lazy())
        with pytest.raises(InputError, match="y: got a LazyFrame"):
            fit(name, X, pl.LazyFrame({"y": Y}))


def test_what_stands_for_no_value() -> None:
    for value in (None, float("nan"), np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("nan")):
        assert is_missing(value)
    for value in (0, "", "nan", False, np.inf, [], np.array([np.nan, 1.0])):
        assert not is_missing(value)
