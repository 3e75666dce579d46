"""What the estimators certify: nothing declared, never above the target, everything that was released counted."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from private_cases import fitted, two_blobs

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck
from lethe.calculus.any_guarantee.composition import convolved, together
from lethe.calculus.guarantees import GDP
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import enforced, fails, holds
from lethe.certificates.statement import Statement
from lethe.estimators import LinearRegression, LogisticRegression
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.inputs.ranges import RangeEndWarning
from lethe.estimators.options import EstimatorOptions

NAMES = tuple(name for name in MECHANISMS if name not in ("auto", "sgd", "adassp", "poisson"))


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("name", [*NAMES, pytest.param("poisson", marks=pytest.mark.slow)])
def test_every_mechanism_meets_the_target_and_declares_nothing(name: str, neighbours: str) -> None:
    model = fitted(mechanism=name, neighbours=neighbours, epsilon=0.8, delta=1e-4)
    assert model.mechanism_ == name
    assert 0.79 < model.epsilon_ <= 0.8
    assert model.delta_ == 1e-4
    assert {finding.evidence for finding in model.certificate_.findings} <= {"checked", "enforced"}
    assert {finding.status for finding in model.certificate_.findings} == {"holds"}
    assert model.statement_.neighbours == neighbours
    if model.run_ is None:
        assert isinstance(model.certificate_, Statement)
    else:
        assert isinstance(model.certificate_, Certificate)
        assert model.run_.release == ("all" if name in ("correlated", "cyclic_poisson_correlated") else "last")
        assert certify(model.run_, 1e-4).epsilon == model.certificate_.epsilon == model.epsilon_
        recheck(model.certificate_)


def test_only_what_is_declared_and_holds_can_become_enforced() -> None:
    findings = (
        holds("release", "said so", evidence="declared"),
        holds("release", "seen"),
        fails("release", "not so", source="", remedy=""),
        holds("domain", "said so", evidence="declared"),
    )
    changed = enforced(findings, {"release": "kept by the code"})
    assert [(one.evidence, one.detail) for one in changed] == [
        ("enforced", "kept by the code"),
        ("checked", "seen"),
        ("checked", "not so"),
        ("declared", "said so"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cyclic", "objective_perturbation", "output_perturbation"])
def test_the_private_feature_norm_is_accounted_for(name: str) -> None:
    model = fitted(mechanism=name, feature_norm="auto", epsilon=1.0)
    training = model.certificate_ if model.run_ is None else certify(model.run_, model.delta_)
    alone = certify(model.run_, model.delta_).epsilon if model.run_ is not None else None
    assert isinstance(training, Statement) or alone < model.epsilon_
    assert isinstance(model.certificate_, Statement)
    assert 0.98 < model.epsilon_ <= 1.0
    assert "feature norm" in model.privacy_report_
    # What the parts cost by another accountant, which knows nothing of how they were joined.
    if model.run_ is not None:
        # No ridge is counted on: how strong it is on the scaled rows follows from the norm, which one time in seventy was so small that
        # the run alone costs visibly less.
        run = certify(model.run_.replace(regulariser=None), model.delta_)
        norm = math.sqrt(mu_of(model.certificate_.guarantee) ** 2 - mu_of(run.guarantee) ** 2)
        total = mu_of(fitted(mechanism=name, epsilon=1.0).certificate_.guarantee)
        assert 0.05 < (norm / total) ** 2 < 0.15
        assert norm == pytest.approx(30.0 / 400.0, rel=1e-9)  # documented: n mu is 30


@pytest.mark.slow
def test_joining_a_minimiser_and_a_gaussian_release_is_no_less_than_numerical_composition() -> None:
    from lethe.mechanisms.minimisers.objective_perturbation import minimiser_profile
    from lethe.run.losses import Logistic, Softmax

    for loss in (Logistic(feature_norm=1.0), Softmax(feature_norm=1.0, classes=3)):
        for nu in (0.02, 0.3):
            parts = [minimiser_profile(loss.on_rows(1.4), ridge=3.0, noise_std=12.0, solver_mu=0.0), GDP(nu)]
            numerical = convolved(dict.fromkeys(parts, 1)).epsilon(1e-5)
            found = together([(part, 1) for part in parts]).epsilon(1e-5)
            assert found >= parts[0].epsilon(1e-5)
            # Two upper bounds of the same loss: losses rounded up to a grid, and one vertex more.
            assert found == pytest.approx(numerical, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"options": EstimatorOptions(whiten=False)}, {"C": np.inf}]
)  # how strong a ridge is on whitened rows follows from their release
def test_the_choice_looks_at_public_facts_only(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    X, y = two_blobs()
    given: dict[str, Any] = {"feature_norm": 4.0, "classes": [0, 1], **options}
    models = [LogisticRegression(**given).fit(*data) for data in ((X, y), (rng.random((400, 3)), y[::-1] * 0))]
    why = [model.privacy_report_.split("Why this mechanism")[1] for model in models]
    assert why[0] == why[1]
    assert models[0].mechanism_ == models[1].mechanism_


@pytest.mark.sampled(4)
@pytest.mark.parametrize("epsilon", [2e-3, 1e-7, 1e-12])
@pytest.mark.parametrize("given", [{}, {"feature_norm": 4.0}])
@pytest.mark.parametrize("make", [LogisticRegression, LinearRegression])
def test_fewer_records_than_one_over_epsilon_teach_nothing(make: type, given: dict[str, float], epsilon: float) -> None:
    X, y = two_blobs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeEndWarning)
        model = make(epsilon=epsilon, **given).fit(X, y)
    assert model.mechanism_ == "zeros"
    assert model.epsilon_ <= epsilon
    assert "fewer than 1/epsilon" in model.privacy_report_
