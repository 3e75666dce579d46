"""`release="all"`: every iterate is certified, so that the result may be a mean of them; of a last iterate alone that is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from private_cases import build, two_blobs

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck
from lethe.certificates.records import TrainingRecord
from lethe.errors import HypothesisError, InputError
from lethe.estimators import LogisticRegression
from lethe.estimators.choice import runs
from lethe.estimators.choice.averaged import noise_kept, start_kept
from lethe.estimators.inputs.records import Records
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.private_estimator import randomness
from lethe.run.batches import Cyclic, Poisson
from lethe.run.losses import Logistic
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
    return runs.carry_out(run, records, chance, averaged=averaged)[0]


@pytest.mark.parametrize("kind", list(RUNS))
@pytest.mark.parametrize("averaged", [1, 2, 3, 7, 12])
def test_the_result_is_the_mean_of_the_iterates_that_the_run_took(monkeypatch: pytest.MonkeyPatch, averaged: int, kind: str) -> None:
    seen: list[np.ndarray] = []

    descend = runs.descend

    def watched(*given: Any, finished: Any, **options: Any) -> Any:
        def both(step: int, iterate: Any) -> None:
            seen.append(iterate.numpy().copy())
            finished(step, iterate)

        return descend(*given, finished=both, **options)

    monkeypatch.setattr(runs, "descend", watched)
    found = carried_out(RUNS[kind], averaged)
    assert len(seen) == 12
    np.testing.assert_allclose(found, np.mean(seen[-averaged:], axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(seen[-1], carried_out(RUNS[kind], 1))
    assert averaged == 1 or not np.allclose(found, seen[-1], rtol=1e-3)


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_mean_is_refused_where_the_last_iterate_alone_is_released(kind: str) -> None:
    last = RUNS[kind].replace(release="last")
    with pytest.raises(HypothesisError, match=r"the mean of the last 3 iterates: release is last, .*\n.*\n  Do: set release: all"):
        runs.carry_out(last, None, None, averaged=3)  # pyright: ignore[reportArgumentType]  # neither records nor noise is touched
    assert np.isfinite(carried_out(last, 1)).all()


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("poisson", "cyclic_poisson_correlated")]


@pytest.mark.parametrize("name", ["cyclic", "full_batch", "correlated", *SLOW])
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
    assert best.mechanism_ == "cyclic_poisson_correlated"


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
