"""A module trains by the solvers as its loss in NumPy does, each record's gradient alone, and with the solver's own certificate."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lethe.accounting.heavy_tailed import certify_solution
from lethe.errors import InputError
from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass, practical_oracle
from lethe.heavy_tailed.accelerated import accelerated
from lethe.heavy_tailed.localisation.descent import localised, strongly_convex
from lethe.heavy_tailed.localisation.plans import localised_practical
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean
from lethe.heavy_tailed.proximal import proximal
from lethe.heavy_tailed.solution import Solution
from lethe.train import ModuleGradients

RNG = np.random.default_rng(0)
ROWS = RNG.standard_t(5, size=(256, 3))
TARGETS = ROWS @ np.array([0.5, -0.2, 0.1]) + RNG.standard_t(3, size=256)
FACTS: dict[str, Any] = {
    "domain": BallDomain(radius=1.0),
    "smoothness": 3.0,
    "strong_convexity": 1.0,
    "pl_constant": 1.0,
    "moments": Moments(order=4, bound=6.0, kind="uniform"),
}
Solve = Callable[[Problem, np.random.Generator | None], Solution]


def _oracle(problem: Problem) -> Any:
    return practical_oracle(problem, rho=0.5)


SOLVERS: dict[str, Solve] = {
    "multi_pass": lambda p, g: multi_pass(p, (ROWS, TARGETS), oracle=_oracle(p), generator=g),
    "one_pass": lambda p, g: one_pass(p, (ROWS, TARGETS), oracle=_oracle(p), steps=9, generator=g),
    "accelerated": lambda p, g: accelerated(p, (ROWS, TARGETS), oracle=_oracle(p), steps=9, step=6.0, generator=g),
    "proximal": lambda p, g: proximal(p, (ROWS, TARGETS), oracle=_oracle(p), steps=9, generator=g),
    "localised": lambda p, g: localised(p, (ROWS, TARGETS), schedule=localised_practical(p, 256, 0.5, most_steps=9), rho=0.5, generator=g),
    "sampled_localised": lambda p, g: sampled_localised(
        p, (ROWS, TARGETS), schedule=localised_practical(p, 256, 0.5, most_steps=9), epsilon=1.0, delta=1e-4, generator=g
    ),
    "strongly_convex": lambda p, g: strongly_convex(p, (ROWS, TARGETS), rho=0.5, most_steps=9, generator=g),
}


def _squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 0.5 * (outputs[:, 0] - targets).square().mean()


@pytest.mark.parametrize("name", SOLVERS)
def test_a_linear_module_trains_as_least_squares_in_numpy_does(name: str) -> None:
    model = nn.Linear(3, 1, bias=False).double()
    before = model.weight.detach().clone()
    module = ModuleGradients(model, _squared)
    by_module = Problem(gradient=module, dimension=module.dimension, **FACTS)
    by_hand = Problem(gradient=lambda w, xy: (xy[0] @ w - xy[1])[:, None] * xy[0], dimension=3, **FACTS)  # pyright: ignore
    solutions = [SOLVERS[name](problem, np.random.default_rng(1)) for problem in (by_module, by_hand)]
    assert solutions[0].parameters == pytest.approx(solutions[1].parameters, rel=1e-9, abs=1e-12)
    certificates = [certify_solution(solution, 1e-4).with_fresh_noise for solution in solutions]
    assert certificates[0] is not None
    assert certificates[0] == certificates[1]
    assert solutions[0].fresh.guarantee == solutions[1].fresh.guarantee
    assert torch.equal(model.weight, before)  # as it was, until it is loaded
    module.load(solutions[0].parameters)
    assert model.weight.detach().numpy()[0] == pytest.approx(solutions[0].parameters, abs=0.0)


def test_a_network_in_single_precision_and_only_its_head() -> None:
    """Gradients are those of autograd, record by record, whoever else is in the batch; what is frozen stays; three lines train it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    labels = (TARGETS > 0.0).astype(np.int64)
    module = ModuleGradients(model, nn.functional.cross_entropy)
    assert module.dimension == 4 + 8 + 2
    rows = module(module.start, (ROWS[:5], labels[:5]))
    for place in range(5):
        loss = nn.functional.cross_entropy(model(torch.tensor(ROWS[[place]]).float()), torch.tensor(labels[[place]]))
        alone = torch.autograd.grad(loss, [model[0].bias, *model[2].parameters()])
        assert rows[place] == pytest.approx(torch.cat([one.flatten() for one in alone]).numpy(), rel=1e-5, abs=1e-7)
    others = module(module.start, (np.vstack([ROWS[:1], 1e6 * ROWS[5:9]]), labels[[0, 5, 6, 7, 8]]))
    assert others[0] == pytest.approx(rows[0], rel=1e-5, abs=1e-7)
    frozen = model[0].weight.clone()

    @torch.no_grad()
    def value() -> float:
        return float(nn.functional.cross_entropy(model(torch.tensor(ROWS).float()), torch.tensor(labels)))

    before = value()
    problem = Problem(gradient=module, dimension=module.dimension)
    oracle = ClippedMean(clip_norm=1.0, rho=50.0)
    solution = multi_pass(problem, (ROWS, labels), oracle=oracle, step_size=0.5, start=module.start)
    module.load(solution.parameters)
    assert value() < before - 0.05
    assert torch.equal(model[0].weight, frozen)
    assert solution.guarantee.epsilon(1e-4) == pytest.approx(certify_solution(solution, 1e-4).epsilon)


def test_layers_that_mix_or_remember_records_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    module = ModuleGradients(model, _squared)
    with pytest.raises((RuntimeError, ValueError)):
        module(module.start, (ROWS[:5], TARGETS[:5]))
    assert torch.equal(model[1].running_mean, torch.zeros(2))
    with pytest.raises(InputError, match="none of its parameters"):
        ModuleGradients(nn.Tanh(), _squared)


class _Remembers(nn.Module):
    """Takes off what it has seen before, by a buffer that it binds anew and by an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("total", torch.zeros(3))
        self.seen: list[torch.Tensor] = []

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.total = self.total + rows.sum(dim=0)
        self.seen.append(rows.sum())
        return self.linear(rows - self.total) * len(self.seen)


def test_no_record_meets_what_another_call_left() -> None:
    torch.manual_seed(0)
    model = _Remembers()
    module = ModuleGradients(model, _squared)
    first = module(module.start, (ROWS[:5], TARGETS[:5]))
    module(module.start, (1e3 * ROWS[5:9], TARGETS[5:9]))
    assert np.array_equal(module(module.start, (ROWS[:5], TARGETS[:5])), first)
    assert torch.equal(model.total, torch.zeros(3))
    assert model.seen == []


@pytest.mark.parametrize("records", [np.eye(8), [ROWS[:8, :1], TARGETS[:8]], (ROWS[:8, :1],), (ROWS[:8, :1], TARGETS[:8], TARGETS[:8])])
def test_records_that_are_no_pair_are_refused(records: Any) -> None:
    """Of one table of 8 rows the first two would be taken for inputs and targets, and all 8 gradients be of both."""
    module = ModuleGradients(nn.Linear(1, 4), nn.functional.mse_loss)
    assert module.dimension == 8
    with pytest.raises(InputError, match="records: got"):
        module(module.start, records)


@pytest.mark.parametrize("value", [None, 1.0, "linear", []])
def test_what_is_no_module_and_no_loss_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"model: got .*Module"):
        ModuleGradients(value, nn.functional.mse_loss)
    with pytest.raises(InputError, match=r"loss: got .*function"):
        ModuleGradients(nn.Linear(1, 1), value)
