"""What a fitted pipeline takes as public of its columns, in words."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

from lethe.estimators import PublicScaler
from lethe.estimators.pipelines.stated_columns import stated_columns

FRAME = pd.DataFrame({"age": [20.0, 30.0], "cost": [1.0, 100.0], "ward": ["a", "b"], "id": [1, 2]})
FILL = SimpleImputer(strategy="constant", fill_value=27, keep_empty_features=True)
BRANCHES = [
    ("numbers", make_pipeline(FILL, PublicScaler(18, 100)), ["age"]),
    ("amounts", make_pipeline(FunctionTransformer(np.log), PublicScaler(0, 9)), [1]),
    ("words", OneHotEncoder(categories=[["a", "b"]], sparse_output=False), ["ward"]),
    ("other", "drop", ["id"]),
]
IN_WORDS = [("age", "18 to 100"), ("cost", "0 to 9, log of it"), ("ward", "a, b")]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (ColumnTransformer(BRANCHES), IN_WORDS),
        (make_pipeline(ColumnTransformer(BRANCHES), PublicScaler(-7, 7)), IN_WORDS),  # what it scales are no columns of the table
        (FeatureUnion([("one", ColumnTransformer(BRANCHES[:1])), ("two", ColumnTransformer(BRANCHES[1:]))]), IN_WORDS),
        (ColumnTransformer([("read off", OneHotEncoder(sparse_output=False), ["ward"])]), []),
        (ColumnTransformer([("mask", PublicScaler([1, 2], [3, 4]), [True, True, False, False])]), [("age", "1 to 3"), ("cost", "2 to 4")]),
        (ColumnTransformer([("slice", make_pipeline(Normalizer(), PublicScaler(0, 1)), slice(0, 2))]), []),
    ],
)
def test_a_column_stands_with_what_was_stated_of_it(step: Any, words: list[tuple[str, str]]) -> None:
    assert stated_columns(step.fit(FRAME)) == words


def test_columns_without_names_have_numbers() -> None:
    rows = FRAME[["age", "cost"]].to_numpy()
    assert stated_columns(make_pipeline(PublicScaler(0, 1)).fit(rows)) == [("column 0", "0 to 1"), ("column 1", "0 to 1")]
    assert stated_columns(make_pipeline(StandardScaler(), PublicScaler(0, 1)).fit(rows)) == []
