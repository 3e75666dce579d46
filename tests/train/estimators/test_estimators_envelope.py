"""Runs of classifiers descend envelopes: of the bound that their noise is scaled to, and chosen by public facts alone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import sparse

from lethe.accounting.certify import certify
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import choose
from lethe.estimators.choice.risk import ENVELOPE_SHARE, cut_losses, run_losses
from lethe.estimators.choice.run_shapes import best_shape
from lethe.estimators.choice.runs import RunMechanism, _gradient_sums  # pyright: ignore[reportPrivateUsage]
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.run.losses import Logistic, SmoothedHinge, Softmax
from lethe.run.losses.linear import LinearLoss
from lethe.train.linear.gradients import LinearModel

LOSSES = (Logistic(feature_norm=1.0), Softmax(feature_norm=1.0, classes=4))
BOUND = 0.3


def _table(rng: np.random.Generator, count: int, loss: LinearLoss) -> tuple[np.ndarray, np.ndarray]:
    rows = rng.standard_normal((count, 3)) * rng.choice([1e-3, 0.2, 1.0, 30.0], size=(count, 1))
    return rows, rng.integers(max(loss.outputs, 2), size=count).astype(float)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradients_are_those_of_the_linear_trainer_along_envelopes(loss: LinearLoss, intercept: bool) -> None:
    rng = np.random.default_rng(0)
    rows, targets = _table(rng, 200, loss)
    order = rng.permutation(200)
    records = Records(rows, targets, loss=loss, feature_norm=1.5, intercept=intercept, order=order).with_envelope(BOUND)
    weights = 5.0 * rng.standard_normal((3 + intercept, loss.outputs))
    column = torch.tensor(targets[order])[:, None]
    model = LinearModel(
        loss,
        torch.tensor(records.dense()[order]),
        column if loss.outputs == 1 else column.long(),
        clip_norm=BOUND,
        method="envelope",
    )
    expected = model.clipped_gradient_sum(torch.tensor(weights), slice(20, 90)).numpy()
    np.testing.assert_allclose(records.gradient_sum(weights, slice(20, 90)), expected, rtol=1e-11)
    plain = records.with_envelope(None).gradient_sum(weights, slice(20, 90))
    assert np.abs(plain - expected).max() > 0.1  # the bound acts


@pytest.mark.slow
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


def test_envelopes_are_for_the_losses_and_records_whose_envelope_is_known() -> None:
    facts = PublicFacts(records=1000, columns=4, loss=LOSSES[0])
    whole, bounded = run_losses(facts)
    assert whole == (facts, 0.0)
    assert bounded[0] == replace(facts, envelope=ENVELOPE_SHARE * facts.norm)
    assert bounded[0].gradient_bound == ENVELOPE_SHARE * facts.norm
    for other in (
        replace(facts, unit="user"),
        replace(facts, weighted=True),
        replace(facts, keeps_loss=True),
        PublicFacts(records=1000, columns=4, loss=SmoothedHinge(feature_norm=1.0, width=0.5)),
    ):
        assert run_losses(other) == cut_losses(other)
        assert all(one.envelope is None for one, _ in run_losses(other))


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


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(("records", "columns", "classes", "epsilon"), [(1400, 64, 10, 0.5), (60_000, 784, 10, 1.0), (4000, 54, 7, 3.0)])
def test_many_classes_are_learned_by_noise_at_pass_ends_and_the_report_says_why(
    records: int, columns: int, classes: int, epsilon: float
) -> None:
    """On generated data the noise left on a weight was best near 1, from 0.4 to 2.5, at every epsilon; and a few dozen passes."""
    facts = PublicFacts(records=records, columns=columns, loss=Softmax(feature_norm=1.0, classes=classes))
    budget = PrivacyBudget(epsilon=epsilon, delta=1e-5)
    choice = choose("auto", facts, budget)
    assert choice.plan.name == "pass_ends"
    assert "envelope" in choice.why
    assert "predicted excess risk" in "\n".join(choice.lines())
    shape = best_shape(facts, "cyclic", "pass_ends", budget.mu)
    steps = shape.passes * (records // shape.size)
    left = facts.swap * steps * shape.step_size * shape.facts.gradient_bound / (records * budget.mu)
    assert 0.4 < left < 2.5
    assert shape.passes >= 10
    assert shape.step_size * shape.facts.smoothness < 2.0


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_what_the_loop_descends_is_no_longer_than_its_run_says(loss: LinearLoss) -> None:
    """Record by record, as fractions; and the run's clip norm is reached."""
    rng = np.random.default_rng(4)
    rows, targets = _table(rng, 40, loss)
    facts = replace(PublicFacts(records=40, columns=3, loss=loss), envelope=BOUND)
    shape = best_shape(facts, "cyclic", "pass_ends", 0.1)
    run = RunMechanism("pass_ends", "cyclic", "pass_ends")._run(shape)  # pyright: ignore[reportPrivateUsage]
    gradient_sum = _gradient_sums(Records(rows, targets, loss=facts.loss, feature_norm=1.0, intercept=True), run)
    weights = torch.from_numpy(30.0 * rng.standard_normal((4, loss.outputs)))
    longest = Fraction(0)
    for place in range(40):
        gradient = gradient_sum(weights, slice(place, place + 1)).numpy().ravel()
        longest = max(longest, sum((Fraction(float(entry)) ** 2 for entry in gradient), start=Fraction(0)))
    assert run.clip_norm is not None
    assert (1.0 - 1e-9) * Fraction(run.clip_norm) ** 2 < longest <= Fraction(run.clip_norm) ** 2
