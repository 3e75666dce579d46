"""An estimator whose noise comes from random_state is no release: its statement, its certificate and its report say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from every_release import CASES, fitted

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import NotPrivate
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import FRESH_NOISE
from lethe.certificates.statement import Statement
from lethe.estimators import privacy_of
from lethe.estimators.private_estimator import PrivateEstimator

QUICK = (
    "classifier by cyclic",
    "classifier by objective_perturbation",
    "PrivateMean",
    "PrivateStandardScaler",
    "PrivatePCA",
    "PrivateWhitening",
    "PrivateSearch",
)
EVERY = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES]


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_no_fit_with_seeded_noise_has_a_guarantee(name: str) -> None:
    model = fitted(name, seed_noise=True)
    assert model.epsilon_ == model.statement_.epsilon(model.delta_) == math.inf
    if isinstance(model.certificate_, Certificate):
        assert model.certificate_.epsilon == model.certificate_.epsilon_at(model.delta_) == math.inf
    assert model.statement_.guarantee == NotPrivate()
    assert 0.0 < model.statement_.planned.epsilon(model.delta_) <= model.epsilon  # what fresh noise would have cost
    for findings in (model.statement_.findings, model.certificate_.findings):
        assert [finding.name for finding in findings if finding.status == "fails"] == [FRESH_NOISE]
        assert not any(finding.name == "secrecy" and finding.evidence == "enforced" for finding in findings)
    assert "\nNOT PRIVATE: no release: " in model.privacy_report_
    assert model.privacy_report_.startswith("(infinity, ")
    assert privacy_of(model).epsilon(model.delta_) == math.inf
    run: Any = getattr(model, "run_", None)
    if run is not None:
        assert run.seeded
        assert certify(run, model.delta_).epsilon == math.inf


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_random_state_alone_is_public_and_seeds_nothing(name: str) -> None:
    model = fitted(name, random_state=np.random.RandomState(3))
    assert not model.statement_.seeded
    assert model.epsilon_ <= model.epsilon
    assert all(finding.status == "holds" for finding in model.statement_.findings)
    run: Any = getattr(model, "run_", None)
    assert run is None or not run.seeded


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_release_of_a_seeded_fit_says_so_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part says is kept apart from what the estimator says of the whole: either alone would do."""
    parts: list[Statement] = []

    def watched(self: PrivateEstimator, given: Sequence[Statement], *rest: Any, **named: Any) -> None:
        parts.extend(given)
        stated(self, given, *rest, **named)

    stated = PrivateEstimator._state
    monkeypatch.setattr(PrivateEstimator, "_state", watched)
    fitted(name, seed_noise=True)
    assert parts
    assert all(part.seeded and part.epsilon(1e-5) == math.inf for part in parts)
