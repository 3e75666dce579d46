"""privacy_of of branches: every one counts in full, none is skipped, and whether their result is sparse is public."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pytest
from pipeline_cases import BRANCHES, ENCODER, FILLED, FRAME, SCALER, WIDE, columns, declared, mu, mu_of, trained
from private_cases import stated
from sklearn.base import clone
from sklearn.compose import make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from lethe.errors import InputError
from lethe.estimators import (
    PrivatePCA,
    PublicScaler,
    privacy_of,
)

# What they warn of is refused below.

SPARSE: Any = clone(ENCODER)
SPARSE.set_params(sparse_output=True)


@pytest.mark.slow
def test_every_branch_counts_and_so_does_the_remainder() -> None:
    model = trained(columns(*BRANCHES, remainder=SCALER), table=FRAME)
    transformers = model[0].named_transformers_
    assert mu_of(model) == pytest.approx(mu(transformers["numbers"][0], transformers["remainder"], model[-1]))
    assert mu_of(model) > 1.05 * mu(transformers["numbers"][0], model[-1])
    assert declared(model) == {}
    union = trained(FeatureUnion([("scaled", SCALER), ("turned", PrivatePCA(2, delta=1e-5)), ("not", "drop"), ("same", "passthrough")]))
    parts = [step for _, step in union[0].transformer_list[:2]]
    assert privacy_of(union) == privacy_of([*parts, union[-1]])
    inner = columns(("deep", columns(("deeper", SCALER, [0])), [0, 1]), remainder="passthrough", sparse_threshold=0)
    deep = trained(inner)
    deepest = deep[0].named_transformers_["deep"].named_transformers_["deeper"]
    assert mu_of(deep) == pytest.approx(mu(deepest, deep[-1]))
    with joblib.parallel_config("threading"):
        weighted = trained(columns(*BRANCHES, transformer_weights={"numbers": 2.0}, n_jobs=2), table=FRAME)
    assert mu_of(weighted) == pytest.approx(mu(weighted[0].named_transformers_["numbers"][0], weighted[-1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "culprit"),
    [
        (columns(("c", OneHotEncoder(sparse_output=False), ["kind"])), "columntransformer > c > OneHotEncoder: it reads its categories"),
        (columns(("c", SimpleImputer(), ["gap"])), "columntransformer > c > SimpleImputer: it learns from the records what to fill in"),
        (columns(("c", SCALER, ["a"]), remainder=OneHotEncoder(sparse_output=False)), "columntransformer > remainder > OneHotEncoder"),
        (columns(("c", make_pipeline(FILLED, StandardScaler()), ["gap"])), "columntransformer > c > standardscaler > StandardScaler"),
        (columns(("c", columns(("d", StandardScaler(), ["a"])), ["a", "b"])), "columntransformer > c > d > StandardScaler"),
        (make_pipeline(columns(("k", WIDE, ["a", "b"])), FeatureUnion([("s", StandardScaler())])), "featureunion > s > StandardScaler"),
    ],
)
def test_a_branch_that_learns_is_refused_by_its_path(step: Any, culprit: str) -> None:
    with pytest.raises(InputError, match=culprit):
        privacy_of(trained(step, table=FRAME))


def test_branches_that_are_dropped_or_see_no_column_are_free() -> None:
    empty = columns(("k", WIDE, ["a", "b"]), ("no", "drop", ["c"]), ("none", StandardScaler(), []), ("mask", SCALER, [False] * 5))
    model = trained(empty, table=FRAME)
    assert stated(model) == model[-1].statement_


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "allowed"),
    [
        (columns(*BRANCHES), True),
        (columns(*BRANCHES, ("same", "passthrough", ["c"])), True),  # of a frame
        (columns(("k", SPARSE, ["kind"]), ("n", WIDE, ["a"])), False),
        (columns(("k", SPARSE, ["kind"]), ("n", WIDE, ["a"]), sparse_threshold=0), True),
        (columns(("n", PublicScaler(-1.0, 1.0), ["a"])), False),  # a sparse column may stay one
        (columns(("n", FILLED, ["gap"])), False),
        (columns(("n", FunctionTransformer(np.tanh, validate=True), ["a"])), False),
        (columns(("n", make_pipeline(WIDE, "passthrough"), ["a"])), False),
        (columns(("n", make_pipeline(FILLED, FunctionTransformer(np.tanh)), ["gap"])), False),  # no frame any more
    ],
)
def test_whether_a_result_is_sparse_must_not_depend_on_records(step: Any, allowed: bool) -> None:
    model = trained(step, table=FRAME)
    if allowed:
        assert declared(model) == {}
    else:
        with pytest.raises(InputError, match=r"(?s)ColumnTransformer: whether its result is a sparse.*sparse_threshold=0"):
            privacy_of(model)


def test_columns_chosen_by_a_function_are_declared() -> None:
    by_type = trained(columns(("n", WIDE, make_column_selector("^[ab]$", dtype_include="number"))), table=FRAME)
    assert declared(by_type) == {}
    by_hand = trained(columns(("n", WIDE, lambda frame: [name for name in "abc" if frame[name].mean() > 0.0])), table=FRAME)
    assert "names and types alone" in declared(by_hand)["step 'columntransformer > n'"]
