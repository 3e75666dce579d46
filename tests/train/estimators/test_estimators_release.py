"""Runs along envelopes, with noise that wanes, and with every iterate certified: what is released, and of which bound its noise is."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from private_cases import two_blobs
from scipy import sparse

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck
from lethe.calculus.guarantees import GDP
from lethe.certificates.records import TrainingRecord
from lethe.errors import HypothesisError
from lethe.estimators import LogisticRegression
from lethe.estimators.choice import descents
from lethe.estimators.choice.run_shapes import best_shape, waning_kept, waning_variances
from lethe.estimators.choice.runs import RunMechanism  # pyright: ignore[reportPrivateUsage]
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.private_estimator import randomness
from lethe.run.batches import Cyclic, Poisson
from lethe.run.losses import Logistic, Softmax
from lethe.run.losses.linear import LinearLoss
from lethe.run.noise import BandedToeplitz
from lethe.run.run import Run

X, y = two_blobs(60)
COMMON: dict[str, Any] = {"feature_norm": 4.0, "epsilon": 1.0, "delta": 1e-4}
STEPS: dict[str, Any] = {"records": 60, "batches": Cyclic(size=20), "passes": 4, "step_size": 0.5, "noise_multiplier": 2.0}
RUN = Run(**STEPS, loss=Logistic(feature_norm=1.05).as_recorded(), release="all", neighbours="zero_out")
RUNS = {
    "independent": RUN,
    "correlated": RUN.replace(noise=BandedToeplitz(coefficients=(1.0, 0.5, 0.3))),
    "Poisson": RUN.replace(batches=Poisson(size=20)),
}


def carried_out(run: Run, averaged: int) -> np.ndarray:
    chance = randomness(3, True, 60)
    records = Records(X, y, loss=Logistic(feature_norm=1.0), feature_norm=4.0, intercept=True, order=chance.order)
    return descents.carry_out(run, records, chance, averaged=averaged)[0]


@pytest.mark.parametrize("kind", list(RUNS))
@pytest.mark.parametrize("averaged", [1, 2, 3, 7, 12])
def test_the_result_is_the_mean_of_the_iterates_that_the_run_took(monkeypatch: pytest.MonkeyPatch, averaged: int, kind: str) -> None:
    seen: list[np.ndarray] = []

    descend = descents.descend

    def watched(*given: Any, finished: Any, **options: Any) -> Any:
        def both(step: int, iterate: Any) -> None:
            seen.append(iterate.numpy().copy())
            finished(step, iterate)

        return descend(*given, finished=both, **options)

    monkeypatch.setattr(descents, "descend", watched)
    found = carried_out(RUNS[kind], averaged)
    assert len(seen) == 12
    np.testing.assert_allclose(found, np.mean(seen[-averaged:], axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(seen[-1], carried_out(RUNS[kind], 1))
    assert averaged == 1 or not np.allclose(found, seen[-1], rtol=1e-3)


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_mean_is_refused_where_the_last_iterate_alone_is_released(kind: str) -> None:
    last = RUNS[kind].replace(release="last")
    with pytest.raises(HypothesisError, match="release: last"):
        descents.carry_out(last, None, None, averaged=3)  # pyright: ignore[reportArgumentType]  # neither records nor noise is touched
    assert np.isfinite(carried_out(last, 1)).all()


@pytest.mark.parametrize("name", ["cyclic", "full_batch", "correlated", "poisson", "cyclic_poisson_correlated"])
def test_every_iterate_is_certified(name: str) -> None:
    model = LogisticRegression(options=EstimatorOptions(mechanism=name, release="all", passes=20), **COMMON).fit(X, y)
    run, certificate = model.run_, model.certificate_
    assert run is not None
    assert run.release == "all"
    assert 0.98 < certify(run, 1e-4).epsilon == certificate.epsilon == model.epsilon_ <= 1.0
    if name in ("cyclic", "full_batch"):  # each of 20 passes has the record once: 1 % less would fail
        assert mu_of(certificate.guarantee) == pytest.approx(math.sqrt(20) / run.noise_multipliers.max(), rel=1e-9)
    assert "release" not in {finding.name for finding in certificate.findings}
    recheck(certificate)


def test_the_fit_says_that_it_is_a_mean() -> None:
    model = LogisticRegression(options=EstimatorOptions(mechanism="correlated", release="all"), **COMMON).fit(X, y)
    assert model.n_averaged_ > 1
    assert f"the mean of the last {model.n_averaged_} iterates" in model.statement_.name
    proof = model._proof  # pyright: ignore[reportPrivateUsage]  # before it is sealed
    assert isinstance(proof, TrainingRecord)
    assert model.run_ is not None
    (released,) = proof.released
    assert released.name == f"coef_ and intercept_, the mean of the last {model.n_averaged_} of {model.run_.total_steps} iterates"
    assert "release" not in {claim.name for claim in proof.enforced}


LOSSES = (Logistic(feature_norm=1.0), Softmax(feature_norm=1.0, classes=4))
BOUND = 0.3


def _table(rng: np.random.Generator, count: int, loss: LinearLoss) -> tuple[np.ndarray, np.ndarray]:
    rows = rng.standard_normal((count, 3)) * rng.choice([1e-3, 0.2, 1.0, 30.0], size=(count, 1))
    return rows, rng.integers(max(loss.outputs, 2), size=count).astype(float)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_no_record_has_more_than_the_bound_by_a_single_bit(loss: LinearLoss, intercept: bool) -> None:
    """The squares of a record's gradient, added up as fractions; and the bound is reached."""
    rng = np.random.default_rng(1)
    rows, targets = _table(rng, 60, loss)
    rows[0], rows[1], rows[2] = 0.0, 1e200, 1e-200
    weights = 30.0 * rng.standard_normal((3 + intercept, loss.outputs))
    longest = 0.0
    for table in (rows, sparse.csr_array(rows)):
        records = Records(table, targets, loss=loss, feature_norm=1.5, intercept=intercept).with_envelope(BOUND)
        for place in range(60):
            gradient = records.gradient_sum(weights, slice(place, place + 1)).ravel()
            squared = sum(Fraction(float(entry)) ** 2 for entry in gradient)
            assert squared <= Fraction(BOUND) ** 2
            longest = max(longest, float(squared) ** 0.5)
    assert longest > (1.0 - 1e-12) * BOUND


def test_the_facts_of_an_envelope_are_what_the_certificate_counts_with() -> None:
    """A shape's gradient bound is the run's clip norm, and its step no longer than 2 over the curvature that the run states."""
    facts = PublicFacts(records=20_000, columns=40, loss=LOSSES[1])
    shape = best_shape(facts, "cyclic", "pass_ends", 0.3)
    assert shape.size < 20_000  # of full batches the certificate is composition's
    run = RunMechanism("pass_ends", "cyclic", "pass_ends")._run(shape)  # pyright: ignore[reportPrivateUsage]
    assert (run.clip_method, run.clip_norm) == ("envelope", shape.facts.gradient_bound)
    lipschitz = certify(run.replace(noise_multiplier=5.0), 1e-6).lipschitz
    assert lipschitz is not None
    assert lipschitz.constant == 1.0


@pytest.mark.parametrize("passes", [1, 2, 7, 400])
def test_the_variances_pay_together_for_one_and_what_is_kept_is_their_sum(passes: int) -> None:
    noise = waning_variances(passes)
    assert np.sum(1.0 / noise) == pytest.approx(1.0, abs=1e-12)
    assert np.all(np.diff(noise) < 0.0)
    for decay in (0.0, 1e-3, 0.5, 0.97, 0.9999, 1.0):
        summed = np.sum(noise * decay ** (2.0 * np.arange(passes - 1, -1, -1)))
        assert float(waning_kept(np.array([decay]), passes)[0]) == pytest.approx(summed, rel=0.01)


def test_a_run_with_noise_that_is_a_hundredth_too_small_costs_more_than_mu() -> None:
    """Composition over the passes: the certificate is mu, neither less nor more, whatever the shape."""
    facts = PublicFacts(records=2000, columns=5, loss=Logistic(feature_norm=1.0), passes=5, neighbours="zero_out")
    shape = best_shape(facts, "cyclic", "pass_ends", 0.3)
    run = RunMechanism("pass_ends", "cyclic", "pass_ends")._run(shape)  # pyright: ignore[reportPrivateUsage]
    assert run.noise_multipliers[run.noisy_steps] == pytest.approx(np.sqrt(waning_variances(5)))
    exact = run.with_noise_scaled(1.0 / 0.3)
    assert certify(exact, 1e-6).epsilon == pytest.approx(GDP(0.3).epsilon(1e-6), rel=1e-6)
    assert certify(exact.with_noise_scaled(0.99), 1e-6).epsilon > GDP(0.3 * 1.005).epsilon(1e-6)
