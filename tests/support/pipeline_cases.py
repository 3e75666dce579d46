"""Steps, branches and pipelines that are quick to fit, and what they cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from private_cases import stated, two_blobs
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from lethe.estimators import LogisticRegression, PrivateStandardScaler, PublicScaler, privacy_of
from lethe.estimators.options import EstimatorOptions

MODEL: Any = LogisticRegression(feature_norm=2.0, options=EstimatorOptions(mechanism="pass_ends", passes=2), delta=1e-5)
SCALER: Any = PrivateStandardScaler(bounds=(-9.0, 9.0), delta=1e-5, epsilon=0.5)
X, y = two_blobs()
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.resize(["u", "v", "w"], len(X)), gap=np.resize([1.0, np.nan], len(X)))
KINDS: Any = [["u", "v", "w"]]
ENCODER: Any = OneHotEncoder(categories=KINDS, sparse_output=False, handle_unknown="ignore")
FILLED: Any = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
WIDE: Any = PublicScaler(-5.0, 6.0)


def trained(*steps: Any, table: Any = X) -> Any:
    return make_pipeline(*(clone(step) for step in steps), clone(MODEL)).fit(table, y)


def mu(*fitted_steps: Any) -> float:
    """Of several releases about the same records."""
    return math.sqrt(math.fsum(step.statement_.guarantee.mu**2 for step in fitted_steps))


def mu_of(one: Any) -> float:
    guarantee: Any = privacy_of(one).guarantee
    return guarantee.mu


def declared(one: Any) -> dict[str, str]:
    return {finding.name: finding.detail for finding in stated(one).findings if finding.evidence == "declared"}


def columns(*branches: tuple[str, Any, Any], **parameters: Any) -> ColumnTransformer:
    return ColumnTransformer(list(branches), **parameters)


BRANCHES = (
    ("numbers", make_pipeline(SCALER, PublicScaler(-2.0, 3.0)), ["a", "b"]),
    ("filled", make_pipeline(FILLED, WIDE), ["gap"]),
    ("kind", ENCODER, ["kind"]),
)
