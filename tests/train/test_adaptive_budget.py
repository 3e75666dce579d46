"""DP-AGD: against the algorithm written out, its two noisy queries, and its budget."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import CLASSES, COLUMNS, make_loss, make_problem
from scipy import stats

from lethe import train
from lethe.calculus import conversions, renyi_conversions
from lethe.calculus.guarantees import ZCDP
from lethe.errors import BudgetExceededError, InputError
from lethe.run.losses import Logistic, Loss, Softmax, Unknown, parse_loss
from lethe.train import AdaptiveDescent, Fitted, Linear, LinearPredictor
from lethe.train.core.generators import seeded_generators
from lethe.train.linear.adaptive_budget import averaged
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.links import LogisticLink
from lethe.train.linear.paid_queries import PaidQueries

KINDS = ("softmax_regression", "logistic_regression", "least_squares")
NEIGHBOURS = ("replace_one", "zero_out", "add_or_remove")


def make_plan(**changes: Any) -> AdaptiveDescent:
    fields: dict[str, Any] = {"rho": 1.0, "gradient_rho": 0.02, "selection_rho": 0.03, "gradient_clip": 0.6, "loss_clip": 2.0}
    return AdaptiveDescent(**{**fields, **changes})


def fit(plan: AdaptiveDescent, kind: str = "logistic_regression", seed: int | None = 0, intercept: bool = False) -> Fitted[LinearPredictor]:
    problem = make_problem(kind)
    loss = parse_loss(make_loss(kind, intercept=intercept))
    return adaptive(plan, problem.features, problem.targets, loss=loss, classes=problem.classes, seed=seed)


def adaptive(
    plan: AdaptiveDescent, features: Any, targets: Any, *, loss: Loss, classes: int | None = None, **options: Any
) -> Fitted[LinearPredictor]:
    return train.fit(Linear(classes=classes), loss, (features, targets), plan.run(len(features), loss), noise_policy=plan, **options)


def written_out(plan: AdaptiveDescent, seed: int) -> tuple[np.ndarray, list[float]]:
    """Lee & Kifer's algorithm for logistic regression, from schedules.md section 9: a residual budget and plain NumPy, record by record."""
    problem, factor = make_problem("logistic_regression"), 2 if plan.neighbours == "replace_one" else 1
    rows = problem.features * np.minimum(1.0, 1.5 / np.linalg.norm(problem.features, axis=1, keepdims=True))
    generator = seeded_generators(seed, (torch.device("cpu"),))[0]

    def noisy_gradient(w: np.ndarray, rho: float) -> np.ndarray:
        total = np.zeros(COLUMNS)
        for row, target in zip(rows, problem.targets, strict=True):
            gradient = row * (1 / (1 + math.exp(-row @ w)) - target)
            total += gradient * min(1.0, plan.gradient_clip / np.linalg.norm(gradient))
        normal = torch.randn(COLUMNS, 1, generator=generator, dtype=torch.float64).numpy()[:, 0]
        return total + factor * plan.gradient_clip * math.sqrt(1 / (2 * rho)) * normal

    def selected(w: np.ndarray, direction: np.ndarray, lengths: np.ndarray) -> int:
        sums = np.zeros(len(lengths))
        for place, length in enumerate(lengths):
            for row, target in zip(rows, problem.targets, strict=True):
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


def paid(plan: AdaptiveDescent, trained: Fitted[LinearPredictor]) -> list[float]:
    """What each step cost, from its history alone: its gradient, all averagings included, and one choice more than averagings."""
    costs, before = [], plan.gradient_rho
    for step in trained.history:
        averagings = round(math.log(step.gradient_rho / before) / math.log1p(plan.growth))
        assert step.gradient_rho == pytest.approx(before * (1 + plan.growth) ** averagings, rel=1e-9)
        costs.append(step.gradient_rho + (averagings + 1) * plan.selection_rho)
        before = step.gradient_rho
    return costs


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(
    rho=st.floats(1e-3, 2.0),
    parts=st.tuples(st.floats(0.005, 0.5), st.floats(0.005, 0.5)),
    growth=st.floats(0.05, 2.0),
    seed=st.integers(0, 10**6),
    neighbours=st.sampled_from(NEIGHBOURS),
)
def test_it_never_overspends(rho: float, parts: tuple[float, float], growth: float, seed: int, neighbours: str) -> None:
    plan = make_plan(rho=rho, gradient_rho=parts[0] * rho, selection_rho=parts[1] * rho, growth=growth, neighbours=neighbours)
    trained = fit(plan, seed=seed)
    spent = np.cumsum(paid(plan, trained))
    assert [step.spent for step in trained.history] == pytest.approx(spent.tolist(), rel=1e-9)
    assert (spent <= rho * (1 + 1e-9)).all()
    assert isinstance(trained.with_fresh_noise, ZCDP)
    assert rho < trained.with_fresh_noise.rho <= rho * (1 + 1e-11)
    assert all(0 < step.length <= step.longest <= plan.longest_step for step in trained.history)


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(rho=st.floats(0.05, 1.0), growth=st.floats(0.05, 2.0), seed=st.integers(0, 10**6))
def test_the_data_is_looked_at_only_for_what_is_paid(rho: float, growth: float, seed: int) -> None:
    """Every look at the data was asked for and paid; the run ends at the first question that the budget does not reach."""
    plan, asked, looks = make_plan(rho=rho, growth=growth), [], []
    originals = PaidQueries.gradient, PaidQueries.best, LinearModel.clipped_gradient_sum, LinearModel.clipped_losses_along

    def gradient(self: PaidQueries, parameters: torch.Tensor, cost: float) -> torch.Tensor:
        asked.append(cost)
        return originals[0](self, parameters, cost)

    def best(self: PaidQueries, *arguments: Any) -> int:
        asked.append(plan.selection_rho)
        return originals[1](self, *arguments)

    def gradient_sum(self: LinearModel, *arguments: Any) -> torch.Tensor:
        looks.append(asked[-1])
        return originals[2](self, *arguments)

    def losses(self: LinearModel, *arguments: Any) -> torch.Tensor:
        looks.append(asked[-1])
        return originals[3](self, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PaidQueries, "gradient", gradient)
        patched.setattr(PaidQueries, "best", best)
        patched.setattr(LinearModel, "clipped_gradient_sum", gradient_sum)
        patched.setattr(LinearModel, "clipped_losses_along", losses)
        fit(plan, seed=seed)
    assert looks == asked[:-1]
    assert math.fsum(looks) <= rho * (1 + 1e-9)
    assert math.fsum(asked) > rho


def queries_on_nothing(plan: AdaptiveDescent, columns: int) -> PaidQueries:
    """Records whose features are 0: every gradient is 0, so that what comes out is noise."""
    model = LinearModel(
        LogisticLink(Logistic(feature_norm=1.0)),
        torch.zeros(3, columns, dtype=torch.float64),
        torch.zeros(3, 1, dtype=torch.int64),
        clip_norm=plan.gradient_clip,
        outputs=1,
    )
    return PaidQueries(plan, model, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_noise_of_a_gradient_is_what_was_paid_for_and_averaging_adds_up(neighbours: str) -> None:
    """Delta^2/(2 rho) with Delta = 2 C_g when a record is replaced, else C_g; the average of two has the variance of their sum of costs."""
    plan, columns = make_plan(neighbours=neighbours, rho=10.0), 200_000
    queries = queries_on_nothing(plan, columns)
    nothing = torch.zeros(columns, 1, dtype=torch.float64)
    first, second = queries.gradient(nothing, 0.4), queries.gradient(nothing, 0.1)
    delta = 1.2 if neighbours == "replace_one" else 0.6
    low, high = stats.chi2.interval(1 - 1e-9, columns)
    for noise, rho in ((first, 0.4), (second, 0.1), (averaged(first, 0.4, second, 0.1), 0.5)):
        assert low < float((noise**2).sum()) / (delta**2 / (2 * rho)) < high
    assert queries.budget.spent() == pytest.approx(0.5)
    assert high / columns < 1.02


def test_a_query_that_cannot_be_paid_does_not_look() -> None:
    queries = queries_on_nothing(make_plan(rho=0.05), 4)
    nothing = torch.zeros(4, 1, dtype=torch.float64)
    with pytest.raises(BudgetExceededError):
        queries.gradient(nothing, 0.06)
    queries.gradient(nothing, 0.04)
    with pytest.raises(BudgetExceededError):
        queries.best(nothing, nothing, torch.zeros(2, dtype=torch.float64))
    assert queries.budget.spent() == pytest.approx(0.04)


def test_the_losses_that_are_compared_are_clipped_record_by_record() -> None:
    random = np.random.default_rng(0)
    rows, targets = random.normal(size=(9, 4)), random.integers(2, size=9)
    model = LinearModel(
        LogisticLink(Logistic(feature_norm=1.0)), torch.tensor(rows), torch.tensor(targets).reshape(-1, 1), clip_norm=1.0, outputs=1
    )
    x, d = random.normal(size=4), random.normal(size=4)
    lengths = [0.0, 0.5, 30.0]
    got = model.clipped_losses_along(torch.tensor(x).reshape(-1, 1), torch.tensor(d).reshape(-1, 1), torch.tensor(lengths).double(), 0.9)
    losses = [np.minimum(np.logaddexp(0, (1 - 2 * targets) * (rows @ (x - length * d))), 0.9).sum() for length in lengths]
    assert got.tolist() == pytest.approx(losses, rel=1e-12)
    assert np.logaddexp(0, (1 - 2 * targets) * (rows @ (x - 30 * d))).max() > 10  # clipping matters there


def test_the_costs_of_a_target_are_lee_and_kifer_s() -> None:
    """(4, 1e-8): rho = 0.196352 (schedules.md section 12, test 1); epsilon_0 = 4/120."""
    plan = AdaptiveDescent.for_target(4.0, 1e-8, gradient_clip=1.0, loss_clip=3.0)
    assert plan.rho == pytest.approx(0.196352, abs=5e-7)
    assert plan.selection_rho == pytest.approx((4 / 120) ** 2 / 2, rel=1e-12)
    assert conversions.gdp_delta(math.sqrt(2 * plan.gradient_rho), 4 / 120) == pytest.approx(1e-8, rel=1e-6)
    trained = fit(AdaptiveDescent.for_target(4.0, 1e-8, splits=5, gradient_clip=1.0, loss_clip=3.0))
    assert trained.with_fresh_noise is not None
    assert renyi_conversions.zcdp_epsilon_simple(trained.with_fresh_noise.rho, 1e-8) <= 4.0 * (1 + 1e-11)
    assert trained.with_fresh_noise.epsilon(1e-8) < 4.0


def test_it_learns_what_can_be_learned() -> None:
    random = np.random.default_rng(0)
    targets = np.arange(3000) % 3
    features = np.eye(3)[targets] + 0.1 * random.normal(size=(3000, 3))
    plan = AdaptiveDescent.for_target(1.0, 1e-5, splits=10, gradient_clip=1.0, loss_clip=3.0, neighbours="zero_out")
    trained = adaptive(plan, features, targets, loss=Softmax(feature_norm=2.0), classes=3, seed=0)
    assert ((features @ trained.model.weights).argmax(axis=1) == targets).mean() > 0.95


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [False, True])
def test_shapes_and_repeatability(kind: str, intercept: bool) -> None:
    trained, again, other = (fit(make_plan(), kind, seed=seed, intercept=intercept) for seed in (0, 0, 1))
    outputs = CLASSES if kind == "softmax_regression" else 1
    assert trained.model.weights.shape == (COLUMNS, outputs)
    assert trained.model.intercept.shape == (outputs,)
    assert trained.model.intercept.any() == intercept
    assert (trained.model.weights == again.model.weights).all()
    assert not np.array_equal(trained.model.weights, other.model.weights)
    assert not np.array_equal(fit(make_plan(), kind, seed=None).model.weights, fit(make_plan(), kind, seed=None).model.weights)
    assert trained.run.neighbours == "replace_one"
    assert fit(make_plan(most_steps=2), kind).history == fit(make_plan(), kind).history[:2]


@pytest.mark.parametrize(
    "changes",
    [
        {"rho": 0.0},
        {"rho": math.nan},
        {"gradient_rho": -1.0},
        {"selection_rho": math.inf},
        {"gradient_clip": 0.0},
        {"loss_clip": True},
        {"candidates": 1},
        {"candidates": 2.0},
        {"longest_step": 0.0},
        {"growth": 0.0},
        {"refresh": 0},
        {"most_steps": 0},
        {"neighbours": "replace_two"},
        {"rho": 0.049},
    ],
)
def test_bad_constants_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        make_plan(**changes)


def test_bad_arguments_are_refused() -> None:
    problem = make_problem("logistic_regression")
    loss: Loss = Logistic(feature_norm=1.0)
    for features, known in ((problem.features * math.nan, loss), (problem.features, Unknown())):
        with pytest.raises(InputError):
            adaptive(make_plan(), features, problem.targets, loss=known)
    for epsilon, delta, splits in ((0.0, 1e-5, 60), (1.0, 0.0, 60), (1.0, 1.0, 60), (1.0, 1e-5, 0), (math.inf, 1e-5, 60)):
        with pytest.raises(InputError):
            AdaptiveDescent.for_target(epsilon, delta, splits=splits, gradient_clip=1.0, loss_clip=1.0)
