"""The repr of a private estimator says its epsilon, at the default too."""

import pytest

pytest.importorskip("sklearn")

from sklearn import config_context

from lethe.estimators import LogisticRegression, PrivateSearch, PrivateStandardScaler, Ridge
from lethe.estimators.options import EstimatorOptions


def test_epsilon_is_shown_at_its_default() -> None:
    assert repr(LogisticRegression()) == "LogisticRegression(epsilon=1.0)"
    assert repr(Ridge(alpha=2.0)) == "Ridge(epsilon=1.0, alpha=2.0)"
    assert repr(PrivateStandardScaler()) == "PrivateStandardScaler(epsilon=1.0)"
    assert repr(PrivateSearch(LogisticRegression(epsilon=3.0), {})).startswith("PrivateSearch(epsilon=1.0, ")


def test_epsilon_is_shown_once() -> None:
    assert repr(LogisticRegression(epsilon=0.5, C=2.0)).count("epsilon=") == 1
    with config_context(print_changed_only=False):
        assert repr(LogisticRegression()).count("epsilon=") == 1
    assert "epsilon=0.5" in repr(LogisticRegression(epsilon=0.5, options=EstimatorOptions(batches=list(range(2000)))))
