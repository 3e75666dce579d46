"""Hong et al. 2022, Figure 1, by its parts: gradients against per-record ones, the budget, and the data's preparation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from digit_samples import TEST, TRAINING
from scipy import stats

import lethe
from lethe.calculus.conversions import zcdp_epsilon_simple
from lethe_experiments.hong.figure_1 import BUDGET, CLIP_NORM, FULL, QUICK, Plan, Schedule, choose, mean_and_margin
from lethe_experiments.hong.samples import COMPONENTS, Sample, Task, gaussian_sample, mnist_samples, normalised

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch")
from lethe_experiments.hong.two_layer_network import Records, TwoLayerNetwork, descend  # noqa: E402  # after the optional torch is seen to be there


def _network(outputs: int, seed: int) -> tuple[TwoLayerNetwork, Tensor, Records]:
    random = np.random.default_rng(seed)
    network = TwoLayerNetwork(inputs=6, hidden=11, outputs=outputs)
    features, labels = random.normal(size=(9, 6)) * 3.0, random.integers(outputs, size=9)
    features[0] = 0.0
    return network, torch.from_numpy(random.normal(size=network.size)), Records.of(features, labels, outputs, torch.float64)


def _each_gradient(network: TwoLayerNetwork, parameters: Tensor, records: Records) -> Tensor:
    """PyTorch's own, by differentiating one record's loss at a time: shape (n, D)."""
    sizes = (6 * 11, 11, 11 * network.outputs, network.outputs)

    def loss(flat: Tensor, row: Tensor, target: Tensor) -> Tensor:
        first, bias, second, offset = flat.split(sizes)
        hidden = torch.nn.functional.linear(row, first.view(6, 11).T, bias).relu()
        scores = torch.nn.functional.linear(hidden, second.view(11, network.outputs).T, offset)
        return -(torch.log_softmax(scores, dim=0) * target).sum()

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, records.features, records.targets)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("outputs", [2, 10])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clip_norm", [1e-3, 4.0, 20.0, 1e9])
def test_gradients_are_those_of_each_record_clipped(outputs: int, seed: int, clip_norm: float) -> None:
    network, parameters, records = _network(outputs, seed)
    each = _each_gradient(network, parameters, records)
    norms = each.norm(dim=1)
    assert torch.allclose(network.gradient_norms(parameters, records), norms, rtol=1e-10, atol=1e-10)
    expected = (each * (clip_norm / norms).clamp(max=1.0).unsqueeze(1)).sum(dim=0)
    before = records.features.clone(), parameters.clone()
    found = network.clipped_gradient_sum(parameters, records, clip_norm)
    assert found.shape == (network.size,)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(records.features, before[0])
    assert torch.equal(parameters, before[1])


def test_one_record_moves_the_sum_by_at_most_the_clip_norm() -> None:
    network, parameters, records = _network(3, 5)
    whole = network.clipped_gradient_sum(parameters, records, CLIP_NORM)
    moved: list[float] = []
    for left_out in range(9):
        kept = torch.arange(9) != left_out
        rest = Records(features=records.features[kept], targets=records.targets[kept])
        moved.append(float((whole - network.clipped_gradient_sum(parameters, rest, CLIP_NORM)).norm()))
    assert max(moved) == pytest.approx(CLIP_NORM, rel=1e-12)  # some record is clipped, and none moves it further


def test_a_record_without_gradient_adds_nothing() -> None:
    """Scores so far apart that the softmax is exactly one."""
    network = TwoLayerNetwork(inputs=1, hidden=1, outputs=2)
    parameters = torch.tensor([0.0, 1.0, 1e4, -1e4, 0.0, 0.0], dtype=torch.float64)
    records = Records.of(np.ones((2, 1)), np.array([0, 0]), 2, torch.float64)
    assert torch.equal(network.clipped_gradient_sum(parameters, records, 1.0), torch.zeros(6, dtype=torch.float64))


def test_loss_and_accuracy() -> None:
    network, parameters, records = _network(3, 6)
    first, bias, second, offset = (part.numpy() for part in parameters.split((66, 11, 33, 3)))
    scores = np.maximum(records.features.numpy() @ first.reshape(6, 11) + bias, 0) @ second.reshape(11, 3) + offset
    labels = records.targets.numpy().argmax(axis=1)
    assert network.loss(parameters, records) == pytest.approx(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(9), labels]))
    assert network.accuracy(parameters, records) == pytest.approx(np.mean(scores.argmax(axis=1) == labels), abs=1e-15)


def test_a_step_is_the_gradient_and_the_noise_over_n() -> None:
    network = TwoLayerNetwork(inputs=6, hidden=500, outputs=3)
    sample = np.random.default_rng(0).normal(size=(8, 6))
    records = Records.of(sample, np.arange(8) % 3, 3, torch.float64)
    steps = {"clip_norm": 2.0, "step_size": 0.3, "seed": 4}
    start = descend(network, records, np.empty(0), **steps)
    without = descend(network, records, np.zeros(1), **steps)
    assert torch.allclose(without, start - 0.3 / 8 * network.clipped_gradient_sum(start, records, 2.0), rtol=1e-12, atol=1e-15)
    noise = descend(network, records, np.array([9.0]), **steps) - without
    # N(0, (step_size C sigma / N)^2) in each of 5003 coordinates: the deviation is within four of its own
    assert float(noise.std()) == pytest.approx(0.3 * 2.0 * 3.0 / 8, rel=4 / math.sqrt(2 * network.size))
    assert abs(float(noise.mean())) < 4 * 0.225 / math.sqrt(network.size)


def test_the_budget_is_the_paper_s() -> None:
    assert abs(BUDGET - 0.392704) < 5e-7
    assert zcdp_epsilon_simple(BUDGET / 2, 1e-8) <= 4.0 * (1 + 1e-12)


@pytest.mark.parametrize("plan", [QUICK, FULL])
def test_every_schedule_spends_the_budget_and_no_more(plan: Plan) -> None:
    for steps in plan.steps:
        for gamma in (None, *plan.gammas):
            variances = Schedule(steps=steps, gamma=gamma).variances()
            assert variances.shape == (steps,)
            assert np.all(np.diff(variances) < 0) if gamma else np.ptp(variances) == 0
            spent = sum(1 / Fraction(variance) for variance in variances.tolist())
            assert Fraction(BUDGET) * (1 - Fraction(1, 10**12)) < spent <= Fraction(BUDGET)


def test_features_are_centred_scaled_and_at_most_ten_long() -> None:
    rows, others = normalised(*(np.random.default_rng(seed).normal(3.0, [1.0, 5.0, 0.1], size=(50, 3)) for seed in (0, 1)))
    assert np.abs(rows.mean(axis=0)).max() < 1e-12
    assert np.ptp(rows.std(axis=0)) < 1e-12
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(10.0, rel=1e-14)
    assert np.abs(others.mean(axis=0)).max() > 0.01  # mapped as the training rows are, not by its own mean
    with pytest.raises(lethe.InputError, match="fewer than 2 directions"):
        normalised(np.array([[1.0, 2.0], [1.0, 3.0]]), np.zeros((1, 2)))


def test_components_are_those_of_the_singular_value_decomposition() -> None:
    task = Task(name="", digits=(2, 3, 8), sizes=(90,))
    seen, unseen = mnist_samples(TRAINING, TEST, task, 90, seed=3)
    assert seen.features.shape == (90, COMPONENTS)
    assert set(seen.labels.tolist()) == {0, 1, 2}
    assert unseen.labels.tolist() == [[2, 3, 8].index(digit) for digit in TEST.labels.tolist() if digit in (2, 3, 8)]
    rows = np.random.default_rng([3, 90, 3]).choice(np.flatnonzero(np.isin(TRAINING.labels, (2, 3, 8))), 90, replace=False)
    assert len(set(rows.tolist())) == 90
    pixels = TRAINING.features[rows]
    _, _, axes = np.linalg.svd(pixels - pixels.mean(axis=0))
    expected = (pixels - pixels.mean(axis=0)) @ axes[:COMPONENTS].T
    scale = 10.0 / np.linalg.norm(expected / expected.std(axis=0), axis=1).max()
    # Signs and order of components are free: compare inner products of records.
    for sample, images in ((seen, pixels), (unseen, TEST.features[np.isin(TEST.labels, (2, 3, 8))])):
        mapped = (images - pixels.mean(axis=0)) @ axes[:COMPONENTS].T / expected.std(axis=0) * scale
        assert np.allclose(sample.features @ sample.features.T, mapped @ mapped.T, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 10])
def test_synthetic_sets_say_nothing_of_the_data(classes: int) -> None:
    sample = gaussian_sample(300, classes, seed=1)
    assert sample.features.shape == (300, COMPONENTS)
    assert np.linalg.norm(sample.features, axis=1).max() == pytest.approx(10.0, rel=1e-14)
    assert set(sample.labels.tolist()) == set(range(classes))
    assert stats.kstest(sample.features[:, 0] / sample.features[:, 0].std(), "norm").pvalue > 1e-3


def test_the_choice_is_the_least_mean_loss_on_those_sets() -> None:
    losses = {2: [1.0, 5.0], 3: [2.0, 3.0], 4: [2.5, 2.5], 5: [0.0, math.inf]}
    asked: list[tuple[int, int]] = []

    def train(jobs: Iterable[tuple[Sample, Sample, Schedule, int]]) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        for records, _, schedule, seed in jobs:
            assert np.array_equal(records.features, gaussian_sample(80, 2, seed).features)
            asked.append((schedule.steps, seed))
            found.append((losses[schedule.steps][sum(steps == schedule.steps for steps, _ in asked) - 1], 0.0))
        return found

    candidates = [Schedule(steps=steps, gamma=None) for steps in losses]
    assert choose(candidates, 80, 2, 2, train).steps == 3
    seeds = {seed for _, seed in asked}
    assert len(seeds) == 2
    assert min(seeds) >= FULL.repeats  # no repeat draws that noise again


def test_the_margin_is_student_s() -> None:
    values = [0.3, 0.7, 0.4, 0.9]
    mean, margin = mean_and_margin(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert margin is not None
    assert (mean - margin, mean + margin) == pytest.approx((low, high), rel=1e-12)
    assert mean_and_margin([2.0]) == (2.0, None)
    assert mean_and_margin([2.0, math.inf]) == (math.inf, None)
    assert mean_and_margin([2.0, math.inf - math.inf]) == (None, None)
