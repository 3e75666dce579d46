"""`release="all"`: every iterate is certified, so that the result may be a mean of them; of a last iterate alone that is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from private_cases import build, three_blobs, two_blobs

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.accounting.recheck import recheck
from lethe.calculus.correlated.sensitivity import column_norms
from lethe.calculus.guarantees import GDP
from lethe.certificates.training_record import TrainingRecord
from lethe.errors import HypothesisError, InputError
from lethe.estimators import Lasso, LinearRegression, LogisticRegression, SoftmaxRegression
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice import descent
from lethe.estimators.choice.averaged import counts, noise_kept, start_kept
from lethe.estimators.choice.choose import choose
from lethe.estimators.choice.last_iterates import LastIterates
from lethe.estimators.choice.run_shapes import best_shape
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.randomness import randomness
from lethe.noise_allocation.correlate import correlate
from lethe.run.batches import Cyclic, CyclicPoisson, Poisson
from lethe.run.losses import Logistic, Softmax
from lethe.run.noise import BandedToeplitz
from lethe.run.run import Run

X, y = two_blobs(60)
COMMON: dict[str, Any] = {"feature_norm": 4.0, "epsilon": 1.0, "delta": 1e-4}
RUN = Run(
    records=60, batches=Cyclic(size=20), passes=4, step_size=0.5, noise_multiplier=2.0, loss=Logistic(feature_norm=1.05).as_recorded(),
    release="all", neighbours="zero_out",
)  # fmt: skip
RUNS = {
    "independent": RUN,
    "correlated": RUN.replace(noise=BandedToeplitz(coefficients=(1.0, 0.5, 0.3))),
    "Poisson": RUN.replace(batches=Poisson(size=20)),
}


def carried_out(run: Run, averaged: int) -> np.ndarray:
    chance = randomness(3, True, 60)
    records = Records(X, y, loss=Logistic(feature_norm=1.0), feature_norm=4.0, intercept=True, order=chance.order)
    return descent.carry_out(run, records, chance.draws, averaged=averaged)[0]


@pytest.mark.parametrize("kind", list(RUNS))
@pytest.mark.parametrize("averaged", [1, 2, 3, 7, 12])
def test_the_result_is_the_mean_of_the_iterates_that_the_run_took(monkeypatch: pytest.MonkeyPatch, averaged: int, kind: str) -> None:
    seen: list[np.ndarray] = []

    class Spy(LastIterates):
        def add(self, step: int, iterate: Any) -> None:
            seen.append(iterate.numpy().copy())
            super().add(step, iterate)

    monkeypatch.setattr(descent, "LastIterates", Spy)
    found = carried_out(RUNS[kind], averaged)
    assert len(seen) == 12
    np.testing.assert_allclose(found, np.mean(seen[-averaged:], axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(seen[-1], carried_out(RUNS[kind], 1))
    assert averaged == 1 or not np.allclose(found, seen[-1], rtol=1e-3)


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_mean_is_refused_where_the_last_iterate_alone_is_released(kind: str) -> None:
    last = RUNS[kind].replace(release="last")
    with pytest.raises(HypothesisError, match=r"the mean of the last 3 iterates: release is last, .*\n.*\n  Do: set release: all"):
        descent.carry_out(last, None, None, averaged=3)  # pyright: ignore[reportArgumentType]  # neither records nor noise is touched
    assert np.isfinite(carried_out(last, 1)).all()


@pytest.mark.parametrize("averaged", [0, 13, 1.5])
def test_a_mean_of_more_iterates_than_there_are_or_of_none_is_refused(averaged: Any) -> None:
    with pytest.raises(InputError, match="count"):
        carried_out(RUN, averaged)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("poisson", "cyclic_poisson", "cyclic_poisson_correlated")]


@pytest.mark.parametrize("name", ["cyclic", "shuffled_once", "full_batch", "correlated", *SLOW])
def test_every_iterate_is_certified(name: str) -> None:
    model = LogisticRegression(options=EstimatorOptions(mechanism=name, release="all", passes=20), **COMMON).fit(X, y)
    run, certificate = model.run_, model.certificate_
    assert run is not None
    assert run.release == "all"
    assert 0.98 < certify(run, 1e-4).epsilon == certificate.epsilon == model.epsilon_ <= 1.0
    if name in ("cyclic", "shuffled_once", "full_batch"):  # each of 20 passes has the record once: 1 % less would fail
        assert mu_of(certificate.guarantee) == pytest.approx(math.sqrt(20) / run.noise_multipliers.max(), rel=1e-9)
    assert "release" not in {finding.name for finding in certificate.findings}
    recheck(certificate)


@pytest.mark.slow
def test_batches_from_groups_are_taken_where_they_are_asked_for_by_name() -> None:
    """Of two passes many batches are predicted to be better, and several groups: certified with their sampling, for all iterates."""
    features, labels = two_blobs(400)
    given = {"passes": 2, **COMMON}
    model = build(LogisticRegression, options=EstimatorOptions(mechanism="correlated", batches="cyclic_poisson"), **given).fit(
        features, labels
    )
    run = model.run_
    assert run is not None
    assert model.mechanism_ == "cyclic_poisson_correlated"
    assert (run.batches.design, run.release, certify(run, 1e-4).theorem) == ("cyclic_poisson", "all", "correlated-sampled")
    assert run.batches.groups_of_records > 1
    assert f"{run.batches.groups_of_records} groups" in model.statement_.name
    assert 0.98 < certify(run, 1e-4).epsilon == model.epsilon_ <= 1.0
    for asked in ({}, {"mechanism": "correlated"}, {"mechanism": "sgd"}, {"release": "all"}):
        other = build(LogisticRegression, **given, **asked).fit(features, labels)
        assert other.run_ is None or other.run_.batches.design != "cyclic_poisson"
    assert "cyclic_poisson batches are drawn in secret from groups; ask for them by name" in other.privacy_report_
    best = build(LogisticRegression, options=EstimatorOptions(batches="cyclic_poisson"), **given).fit(features, labels)
    assert best.mechanism_ in ("cyclic_poisson", "cyclic_poisson_correlated")


@pytest.mark.slow
def test_the_noise_that_the_rule_expects_of_groups_is_about_what_they_need() -> None:
    """The multiplier that is planned, next to the central limit of the rule, in units of the column's length."""
    mu, slots, passes = 0.5, 100, 10
    for groups in (5, 20):
        batches = CyclicPoisson(size=10, groups=groups)
        plain = RUN.replace(records=1000, batches=batches, passes=passes, loss=Logistic(feature_norm=1.0).as_recorded())
        found = plan(correlate(plain), GDP(mu).epsilon(1e-5), 1e-5)
        assert found.noise is not None
        draws = passes * slots / groups
        expected = math.sqrt(1.0 / math.log1p((mu * slots / groups) ** 2 / draws))
        needed = float(found.uncorrelated.record_noise.max() / column_norms(found.noise.strategy(found.total_steps)).max())
        assert needed == pytest.approx(expected, rel=0.15)


@pytest.mark.slow
def test_the_fit_says_that_it_is_a_mean() -> None:
    model = LogisticRegression(options=EstimatorOptions(mechanism="correlated", release="all"), **COMMON).fit(X, y)
    assert model.n_averaged_ > 1
    assert f"the mean of the last {model.n_averaged_} iterates" in model.statement_.name
    assert f"the mean of the last {model.n_averaged_} iterates" in model.privacy_report_
    proof = model._proof  # pyright: ignore[reportPrivateUsage]  # before it is sealed
    assert isinstance(proof, TrainingRecord)
    assert model.run_ is not None
    (released,) = proof.released
    assert released.name == f"coef_ and intercept_, the mean of the last {model.n_averaged_} of {model.run_.total_steps} iterates"
    assert "release" not in {claim.name for claim in proof.enforced}
    recheck(model.certificate_)
    last = LogisticRegression(options=EstimatorOptions(mechanism="pass_ends"), **COMMON).fit(X, y)
    assert last.n_averaged_ == 1
    assert "iterates" not in last.statement_.name


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mechanism": "pass_ends"}, "its noise hides the last iterate alone"),
        ({"mechanism": "joint"}, "its noise hides the last iterate alone"),
        ({"schedule": "pass_ends"}, "batches, passes, schedule"),
        ({"mechanism": "objective_perturbation"}, "are a run's"),
        ({"mechanism": "output_perturbation"}, "are a run's"),
        ({"release": "some"}, "release"),
        ({"release": None}, "release"),
    ],
)
def test_what_does_not_cover_every_iterate_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(LogisticRegression, **({"release": "all", **COMMON} | parameters)).fit(X, y)


@pytest.mark.slow
def test_users_weights_and_penalties_are_trained_so_too() -> None:
    users, asked = np.arange(120) // 2, {"release": "all", "mechanism": "correlated", **COMMON}
    rows, labels = two_blobs(120)
    of_users = build(LogisticRegression, classes=[0, 1], **asked).fit(rows, labels, users=users)
    weighted = build(LogisticRegression, **asked).fit(rows, labels, sample_weight=np.linspace(0.0, 1.0, 120))
    sparse = build(Lasso, target_bound=4.0, **asked).fit(rows, rows[:, 0])
    plain = build(LinearRegression, target_bound=4.0, **asked).fit(rows, rows[:, 0])
    classes = build(SoftmaxRegression, **asked).fit(*three_blobs(120))
    for model in (of_users, weighted, sparse, plain, classes):
        assert model.run_.release == "all"
        assert model.run_.unit == ("user" if model is of_users else "record")
        assert 0.98 < certify(model.run_, 1e-4).epsilon <= 1.0
        recheck(model.certificate_)


def brute_force(factor: float, steps: int, averaged: int, inverse: np.ndarray) -> tuple[float, float]:
    """What is left of the start, and the variance of the noise, by following the recursion; w = inverse @ z."""
    iterates, start = np.zeros((steps + 1, steps)), factor ** np.arange(steps + 1)
    for step in range(steps):
        iterates[step + 1] = factor * iterates[step] + inverse[step]
    return float(start[-averaged:].mean()), float(np.square(iterates[-averaged:].mean(axis=0)).sum())


@pytest.mark.parametrize("averaged", [1, 5, 8])
@pytest.mark.parametrize("factor", [0.0, 0.3, 0.9, 0.999])
def test_what_a_mean_keeps_is_what_the_recursion_keeps(factor: float, averaged: int) -> None:
    start, variance = brute_force(factor, 40, averaged, np.eye(40))
    assert start_kept(np.array([factor]), 40, averaged)[0] == pytest.approx(start, rel=1e-9, abs=1e-12)
    assert noise_kept(np.array([factor]), 40, averaged)[0] == pytest.approx(variance, rel=0.03)  # between the factors looked at
    assert start_kept(np.array([1.0]), 40, averaged)[0] == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("averaged", [1, 5, 8])
def test_correlated_noise_is_kept_as_the_recursion_keeps_it(averaged: int) -> None:
    # A banded strategy of one column after the other; 0 and 1 - 1e-6 are among the factors looked at.
    column = np.array([1.0, 0.5, 0.375, 0.3125, 0.2734375])
    strategy = np.tril(sum(np.diag(np.full(40 - k, entry), -k) for k, entry in enumerate(column)))
    touches = np.array([strategy[:, slot::5].sum(axis=1) for slot in range(5)])
    square = float(np.square(touches).sum(axis=1).max())
    for factor in (0.0, 1.0 - 1e-6):
        _, variance = brute_force(factor, 40, averaged, np.linalg.inv(strategy))
        assert noise_kept(np.array([factor]), 40, averaged, slots=5)[0] == pytest.approx(square * variance, rel=1e-9)


@pytest.mark.slow
def test_the_rule_takes_a_mean_where_noise_is_what_costs() -> None:
    facts = PublicFacts(records=2000, columns=64, loss=Softmax(feature_norm=1.0, classes=10), neighbours="zero_out", release="all")
    shape = best_shape(facts, "cyclic", "correlated", 0.2)
    assert shape.averaged in counts(facts.records // shape.size, shape.passes * (facts.records // shape.size))
    assert shape.averaged > 1
    assert best_shape(facts, "cyclic", "pass_ends", 0.2).averaged == 1
    choice = choose("auto", facts, PrivacyBudget(epsilon=1.0, delta=1e-5))
    refused = dict(choice.others)
    assert "hides the last iterate alone" in str(refused["pass_ends"])
    assert "are a run's" in str(refused["objective_perturbation"])
