"""Adaptive training: DP-AGD against the algorithm written out, and its budget; validation decay, and what it looks at."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import problems
import pytest
import torch
from doors import fit_linear
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import COLUMNS, RECORDS, make_problem, make_run

import lethe
import lethe.report
from lethe.calculus import conversions
from lethe.calculus.guarantees import ZCDP
from lethe.errors import InputError
from lethe.report.subject import subject_of
from lethe.run.active_spender import in_force
from lethe.run.losses import Logistic, Softmax, parse_loss
from lethe.run.losses.linear import LinearLoss
from lethe.train.core.budgeted_noise import Observed
from lethe.train.core.generators import seeded_generators
from lethe_experiments.adaptive import AdaptiveDescent, AdaptivelyTrained, ValidationDecay, train_adaptively

NEIGHBOURS = ("replace_one", "zero_out", "add_or_remove")


def make_plan(**changes: Any) -> AdaptiveDescent:
    fields: dict[str, Any] = {"rho": 1.0, "gradient_rho": 0.02, "selection_rho": 0.03, "gradient_clip": 0.6, "loss_clip": 2.0}
    return AdaptiveDescent(**{**fields, **changes})


def make_loss(kind: str, intercept: bool = False) -> LinearLoss:
    loss = parse_loss(problems.make_loss(kind, intercept=intercept))
    assert isinstance(loss, LinearLoss)
    return loss


def fit(
    plan: AdaptiveDescent, kind: str = "logistic_regression", seed: int | None = 0, intercept: bool = False, **options: Any
) -> AdaptivelyTrained:
    data = make_problem(kind)
    return train_adaptively(
        plan, data.features, data.targets, **{"loss": make_loss(kind, intercept), "classes": data.classes, "seed": seed, **options}
    )


def written_out(plan: AdaptiveDescent, seed: int) -> tuple[np.ndarray, list[float]]:
    """Lee & Kifer's algorithm for logistic regression, from schedules.md section 9: a residual budget and plain NumPy, record by record."""
    data, factor = make_problem("logistic_regression"), 2 if plan.neighbours == "replace_one" else 1
    rows, given = data.features * np.minimum(1.0, 1.5 / np.linalg.norm(data.features, axis=1, keepdims=True)), data.targets
    generator = seeded_generators(seed, (torch.device("cpu"),) * 2)[1]

    def noisy_gradient(w: np.ndarray, rho: float) -> np.ndarray:
        total = np.zeros(COLUMNS)
        for row, target in zip(rows, given, strict=True):
            gradient = row * (1 / (1 + math.exp(-row @ w)) - target)
            total += gradient * min(1.0, plan.gradient_clip / np.linalg.norm(gradient))
        normal = torch.randn(COLUMNS, 1, generator=generator, dtype=torch.float64).numpy()[:, 0]
        return total + factor * plan.gradient_clip * math.sqrt(1 / (2 * rho)) * normal

    def selected(w: np.ndarray, direction: np.ndarray, lengths: np.ndarray) -> int:
        sums = np.zeros(len(lengths))
        for place, length in enumerate(lengths):
            for row, target in zip(rows, given, strict=True):
                sums[place] += min(math.log1p(math.exp((1 - 2 * target) * row @ (w - length * direction))), plan.loss_clip)
        one, other = (torch.empty(len(lengths), dtype=torch.float64).exponential_(generator=generator).numpy() for _ in range(2))
        return int(np.argmin(sums + factor * plan.loss_clip / math.sqrt(2 * plan.selection_rho) * (one - other)))

    w, rho, rho_ng, longest, chosen = np.zeros(COLUMNS), plan.rho, plan.gradient_rho, plan.longest_step, []
    while rho >= rho_ng:
        gradient = noisy_gradient(w, rho_ng)
        rho -= rho_ng
        lengths = np.linspace(0, longest, plan.candidates)
        while True:
            if rho < plan.selection_rho:
                return w, chosen
            rho -= plan.selection_rho
            place = selected(w, gradient / np.linalg.norm(gradient), lengths)
            if place > 0:
                break
            extra = plan.growth * rho_ng
            if rho < extra:
                return w, chosen
            rho -= extra
            gradient = (rho_ng * gradient + extra * noisy_gradient(w, extra)) / (rho_ng + extra)
            rho_ng += extra
        w = w - lengths[place] * gradient / np.linalg.norm(gradient)
        chosen.append(float(lengths[place]))
        if len(chosen) % plan.refresh == 0:
            longest = min(1.1 * max(chosen[-plan.refresh :]), plan.longest_step)
    return w, chosen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_the_published_algorithm(neighbours: str, seed: int) -> None:
    plan = make_plan(neighbours=neighbours, refresh=2, growth=0.3, candidates=7)
    trained = fit(plan, seed=seed)
    weights, lengths = written_out(plan, seed)
    assert [step.length for step in trained.history] == pytest.approx(lengths, rel=1e-12)
    assert trained.model.weights[:, 0] == pytest.approx(weights, rel=1e-9)  # sums in another order, twenty steps
    assert len(lengths) > 4  # the longest candidate has been refreshed
    assert len({step.longest for step in trained.history}) > 1
    assert any(step.gradient_rho > plan.gradient_rho for step in trained.history)  # and a gradient averaged


@settings(max_examples=examples(30))
@given(
    rho=st.floats(1e-3, 2.0),
    parts=st.tuples(st.floats(0.005, 0.5), st.floats(0.005, 0.5)),
    growth=st.floats(0.05, 2.0),
    seed=st.integers(0, 10**6),
    neighbours=st.sampled_from(NEIGHBOURS),
)
def test_it_never_overspends(rho: float, parts: tuple[float, float], growth: float, seed: int, neighbours: str) -> None:
    """Each step costs its gradient, all averagings included, and one choice more than averagings, as its history tells."""
    plan = make_plan(rho=rho, gradient_rho=parts[0] * rho, selection_rho=parts[1] * rho, growth=growth, neighbours=neighbours)
    trained = fit(plan, seed=seed)
    spent, before = 0.0, plan.gradient_rho
    for step in trained.history:
        averagings = round(math.log(step.gradient_rho / before) / math.log1p(growth))
        assert step.gradient_rho == pytest.approx(before * (1 + growth) ** averagings, rel=1e-9)
        spent, before = spent + step.gradient_rho + (averagings + 1) * plan.selection_rho, step.gradient_rho
        assert step.spent == pytest.approx(spent, rel=1e-9)
        assert 0 < step.length <= step.longest <= plan.longest_step
    assert max(spent, trained.spent) <= rho * (1 + 1e-9)
    planned = trained.statement.planned
    assert isinstance(planned, ZCDP)
    assert rho < planned.rho <= rho * (1 + 1e-11)


def test_the_costs_of_a_target_are_lee_and_kifer_s() -> None:
    """(4, 1e-8): rho = 0.196352 (schedules.md section 12, test 1); epsilon_0 = 4/120."""
    plan = AdaptiveDescent.for_target(4.0, 1e-8, gradient_clip=1.0, loss_clip=3.0)
    assert plan.rho == pytest.approx(0.196352, abs=5e-7)
    assert plan.selection_rho == pytest.approx((4 / 120) ** 2 / 2, rel=1e-12)
    assert conversions.gdp_delta(math.sqrt(2 * plan.gradient_rho), 4 / 120) == pytest.approx(1e-8, rel=1e-6)
    trained = fit(AdaptiveDescent.for_target(4.0, 1e-8, splits=5, gradient_clip=1.0, loss_clip=3.0))
    planned = trained.statement.planned
    assert isinstance(planned, ZCDP)
    assert conversions.zcdp_epsilon_simple(planned.rho, 1e-8) <= 4.0 * (1 + 1e-11)
    assert planned.epsilon(1e-8) < 4.0


@pytest.mark.parametrize("seed", [None, 3])
def test_it_is_reported_by_its_statement(seed: int | None, tmp_path: Path) -> None:
    """It is no run: certify refuses it, and what it costs is its budget."""
    plan, delta = make_plan(rho=0.5, neighbours="zero_out"), 1e-5
    with in_force(object(), "patients"), pytest.raises(InputError, match="AdaptiveDescent"):
        fit(plan)  # what pays for trainings in a block cannot tell the price of this one: refused, not left uncounted
    trained = fit(plan, seed=seed)
    stated = trained.statement
    assert (stated.neighbours, stated.records, stated.seeded) == ("zero_out", RECORDS, seed is not None)
    with pytest.raises(InputError, match=r"needs a lethe\.Run"):
        lethe.certify(trained, delta)  # pyright: ignore[reportArgumentType]
    assert subject_of(trained, delta=delta).epsilon == stated.guarantee.epsilon(delta)
    lethe.report.write(trained, tmp_path / "report.md", delta=delta)
    text = (tmp_path / "report.md").read_text()
    if seed is not None:
        assert "NOT PRIVATE" in text
        return
    assert "out of rho = 0.5" in text
    assert "Lee, Kifer 2018" in text
    stated.save(tmp_path / "statement.json")
    with pytest.raises(InputError, match="same release"):
        lethe.total([tmp_path / "statement.json", stated], delta=delta)
    total = lethe.total([tmp_path / "statement.json", fit(plan, seed=None).statement], delta=delta)
    assert total.epsilon >= lethe.guarantees.ZCDP(1.0).epsilon(delta), "two trainings cost twice the budget"


def look(step: int, parameters: np.ndarray) -> Observed:
    return Observed(step=step, steps_per_pass=4, parameters=parameters, remaining=1.0, last_multiplier=None)


FEATURES, TARGETS = np.eye(4), np.array([0, 1, 2, 0])
GOOD, BAD = np.eye(4)[:, [0, 1, 2]] + np.outer([0, 0, 0, 1], [1, 0, 0]), -np.eye(4)[:, [0, 1, 2]] - np.outer([0, 0, 0, 1], [1, 0, 0])


def decay(**changes: Any) -> ValidationDecay:
    return ValidationDecay(FEATURES, TARGETS, **{"loss": Softmax(feature_norm=1.5), "classes": 3, "period": 2, "window": 1, **changes})


def walk(policy: ValidationDecay, iterates: list[np.ndarray]) -> list[float]:
    """The multiplier of the first step of every pass, when pass p ended at iterates[p - 1]."""
    return [policy(look(4 * place + 1, np.zeros((4, 3)) if place == 0 else iterates[place - 1])) for place in range(len(iterates) + 1)]


def test_the_noise_falls_when_accuracy_stops_rising() -> None:
    """Checked after passes 2, 4, 6, ...: accuracy 1 gains on 0 first, and never again."""
    assert walk(decay(), [GOOD] * 6) == pytest.approx([10, 10, 10, 10, 8, 8, 6.4])
    assert walk(decay(), [BAD] * 4) == pytest.approx([10, 10, 8, 8, 6.4])  # accuracy 0 is no gain on S_0 = 0
    assert walk(decay(), [BAD, BAD, BAD, GOOD]) == pytest.approx([10, 10, 8, 8, 8])
    assert walk(decay(threshold=0.0), [GOOD] * 4) == [10.0] * 5  # standing still is not below a threshold of 0
    assert walk(decay(first=3.0, factor=0.5), [BAD, BAD]) == [3.0, 3.0, 1.5]
    # The window averages the last passes only: two of two, then one of two, S falls from 1 to 1/2; with a window of one it stays at 1.
    half, policy = [GOOD, GOOD, BAD, GOOD], decay()
    assert walk(decay(window=2), half)[-1] == 8.0
    assert walk(decay(window=1, threshold=0.0), half)[-1] == 10.0
    for _ in range(2):  # between two passes nothing is looked at, and step one begins anew
        assert walk(policy, [BAD, BAD]) == [10.0, 10.0, 8.0]
        assert [policy(look(step, BAD)) for step in (10, 11, 12)] == [8.0] * 3


@pytest.mark.parametrize("kind", [Softmax, Logistic])
@pytest.mark.parametrize("intercept", [False, True])
def test_it_measures_the_accuracy_that_the_trained_model_has(kind: type[LinearLoss], intercept: bool) -> None:
    """On rows that need projecting: the policy's decisions are those of `LinearPredictor.accuracy` at each pass end."""
    loss, classes = kind(feature_norm=1.5, intercept=intercept, evidence="enforced"), 3 if kind is Softmax else 2
    (features, targets), public = (
        (random.normal(size=(records, 4)) * 0.8, random.integers(classes, size=records))
        for random, records in ((np.random.default_rng(0), 23), (np.random.default_rng(1), 50))
    )
    run = make_run(passes=6, step_size=4.0, noise_budget=50.0, noise_multiplier=None, loss=loss, release="all")

    def trained(passes: int) -> Any:
        policy = ValidationDecay(*public, loss=loss, classes=classes, period=1, window=1, threshold=0.03)
        return fit_linear(run.replace(passes=passes), features, targets, classes=classes, seed=0, noise_policy=policy)

    accuracies = [0.0] + [trained(passes).model.accuracy(*public) for passes in range(1, 6)]
    expected, multiplier = [10.0], 10.0
    for before, after in pairwise(accuracies):
        multiplier *= 0.8 if after - before < 0.03 else 1.0
        expected.append(multiplier)
    assert trained(6).run.noise_multipliers[::4] == pytest.approx(expected)
    assert 1 < len(set(expected)) < 6  # some checks see progress and some do not
