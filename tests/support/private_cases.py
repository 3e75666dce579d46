"""Small data sets for the tests of the private estimators."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from lethe.certificates.statement import Statement
from lethe.estimators import LogisticRegression, privacy_of
from lethe.estimators.models.classifiers import PrivateClassifier
from lethe.estimators.options import EstimatorOptions


def two_blobs(records: int = 400, columns: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(records) % 2
    return rng.standard_normal((records, columns)) + 2.0 * labels[:, None], labels


def three_blobs(records: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(records) % 3
    return rng.standard_normal((records, 4)) + 3.0 * np.eye(4)[labels], labels


def fitted(records: int = 400, **parameters: object) -> PrivateClassifier:
    return build(LogisticRegression, **{"feature_norm": 4.0, **parameters}).fit(*two_blobs(records))


def stated(one: Any) -> Statement:
    """What privacy_of says, but for what it always takes on trust: that nothing else was fitted and looked at."""
    found = privacy_of(one)
    kept = tuple(finding for finding in found.findings if finding.name != "no other fits")
    assert len(kept) == len(found.findings) - 1
    return replace(found, findings=kept)


def cloned(estimator: Any) -> Any:
    """scikit-learn's clone, whose own annotations do not say what it returns."""
    return clone(estimator)


def build(kind: Any, *given: Any, **parameters: Any) -> Any:
    """An estimator of parameters and options, all by name."""
    own = {name: parameters.pop(name) for name in kind.takes_options & parameters.keys()}
    if own:
        parameters["options"] = replace(parameters.get("options", EstimatorOptions()), **own)
    return kind(*given, **parameters)
