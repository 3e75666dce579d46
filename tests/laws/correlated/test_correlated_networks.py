"""Networks, heads, loops and ledgers with correlated noise: the noise certified is added to the sums, and what is executed is told."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_head, fit_linear
from helpers import as_planned, make_run, with_fresh_noise
from torch import nn

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.errors import InputError, LetheError
from lethe.integrations.logging.description import EpsilonSoFar, settings_of
from lethe.run.noise import LowerTriangular
from lethe.theorems.correlated_noise import slot_mus
from lethe.train import Callback, PrivacyEngine, TrainOptions, fit
from lethe.train.callbacks.callback import StepEnd, TrainingEnd
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise

BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}
LOSS = nn.CrossEntropyLoss(reduction="none")


def run_of(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"noise": BANDED, "clip_norm": 1.0, "loss": {"kind": "unknown"}, "release": "all", "steps": 6}
    return make_run(**{**fields, **changes})


def data(records: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    features = torch.randn(records, 3, generator=torch.Generator().manual_seed(0))
    return features, (features[:, 0] > 0).long()


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)


@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_training_adds_that_noise_to_the_sums(momentum: float | None) -> None:
    """A loss without gradient: the model walks by the correlated noise alone, over b, as SGD takes it."""
    run, model = run_of(step_size=[0.5, 0.1, 0.2, 0.5, 0.5, 0.3] if momentum is None else 0.2), nn.Linear(3, 2, bias=False).double()
    start = model.weight.detach().clone()
    nothing = lambda outputs, targets: 0.0 * outputs.sum(1)  # noqa: E731
    optimizer = None if momentum is None else torch.optim.SGD(model.parameters(), lr=0.2, momentum=momentum)
    features, targets = data()
    fitted = fit(
        model,
        nothing,
        (features.double(), targets),
        run,
        optimizer=optimizer,
        options=TrainOptions(noise_generator=np.random.default_rng(3), isolation="declared"),
    )
    drawing, steps = NetworkNoise(np.random.default_rng(3)), []
    for _ in range(6):
        fresh = torch.zeros(6, dtype=torch.float64)
        drawing.add_to([fresh], 1.0)
        steps.append(fresh.numpy())
    assert run.noise is not None
    on_sums = np.linalg.inv(as_matrix(run.noise.strategy(6))) @ np.array(steps) * 5.0
    place, velocity = start.numpy().reshape(-1).copy(), np.zeros(6)
    for size, noise in zip(run.step_sizes, on_sums, strict=True):
        velocity = (momentum or 0.0) * velocity + noise / 10
        place -= size * velocity
    assert model.weight.detach().numpy().reshape(-1) == pytest.approx(place, rel=1e-9)
    assert fitted.run.noise == run.noise


def test_no_copy_adds_the_same_numbers() -> None:
    drawing = CorrelatedNetworkNoise(run_of(), NetworkNoise(np.random.default_rng(1)), torch.float64)
    with pytest.raises(InputError, match="copy"):
        copy.deepcopy(drawing)


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"noise_policy": lambda observed: 1.0}, "noise_policy"),
        ({"noise": {"kind": "banded_toeplitz", "coefficients": [1.0, 9.0]}, "steps": 20}, {}, "drowns"),
    ],
)
def test_what_it_cannot_do_is_refused(changes: dict[str, Any], options: dict[str, Any], said: str, tmp_path: Path) -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(LetheError, match=said):
        fit(
            model,
            LOSS,
            data(),
            run_of(**changes),
            **arguments({"checkpoints": tmp_path / "folder" if "noise_policy" not in options else None, **options}),
        )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not (tmp_path / "folder" / "checkpoint.pt").exists()


def loop(
    run: lethe.Run, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Any = LOSS, steps: int = 6, **options: Any
) -> PrivacyEngine:
    """A loop of one's own, of so many steps."""
    dtype = next(model.parameters()).dtype
    engine = PrivacyEngine(
        model, optimizer, lambda batch: loss(model(batch[0]), batch[1]), (data()[0].to(dtype), data()[1]), run, **arguments(options)
    )
    loader = engine.batches()
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
        if engine.steps == steps:
            break
    return engine


def test_a_loop_of_one_s_own_takes_the_same_steps_as_fit() -> None:
    for make in (lambda given: torch.optim.SGD(given, lr=0.5), lambda given: torch.optim.Adam(given, lr=0.1)):
        models = [network(), network()]
        seeds = {"seed": 4}
        fitted = fit(models[0], LOSS, data(), run_of(), optimizer=make(models[0].parameters()), **arguments(seeds))
        engine = loop(run_of(), models[1], make(models[1].parameters()), **seeds)
        assert all(torch.equal(*pair) for pair in zip(models[0].parameters(), models[1].parameters(), strict=True))
        assert engine.recorded_run() == fitted.run
        assert with_fresh_noise(fitted.run) == run_of()


def test_a_loop_is_certified_as_its_run_is() -> None:
    """Half of it, and all of it: a Toeplitz strategy is one for every number of steps, a matrix for its own alone."""
    run, model = run_of(), network()
    engine = loop(run, model, torch.optim.Adam(model.parameters()), steps=3)
    three = run.replace(steps=3)
    assert engine.epsilon(1e-5, steps_fixed_in_advance=True) == lethe.certify(three, 1e-5).epsilon
    assert engine.recorded_run() == run
    taken = engine.recorded_run(steps_fixed_in_advance=True)
    assert (taken.total_steps, taken.noise) == (3, run.noise)
    assert lethe.certify(taken, 1e-5).epsilon == pytest.approx(lethe.certify(three, 1e-5).epsilon, rel=1e-12)
    certificate = lethe.certify(engine.record(), 1e-5)
    assert (certificate.epsilon, certificate.theorem) == (lethe.certify(run, 1e-5).epsilon, "correlated-noise")
    assert certificate.seal is not None


def test_a_loop_that_ends_early_has_no_matrix_of_so_many_steps(tmp_path: Path) -> None:
    run, model = run_of(noise=LowerTriangular.saved(binary_tree(6), tmp_path / "tree.npy")), network()
    engine = loop(run, model, torch.optim.Adam(model.parameters()), steps=3)
    assert engine.recorded_run() == run
    assert engine.epsilon(1e-5, steps_fixed_in_advance=True) == lethe.certify(run, 1e-5).epsilon  # of the whole plan
    with pytest.raises(InputError, match="for 6 steps; the run has 3"):
        engine.recorded_run(steps_fixed_in_advance=True)


def test_a_loop_with_several_step_sizes_says_what_it_has_spent_so_far() -> None:
    """Noise divided by these step sizes differs in its last bits: it is that of the plan, which has one number."""
    sizes, features = np.random.default_rng(0).uniform(0.001, 1.0, 6).tolist(), data()
    run = run_of(step_size=sizes, steps=6, noise_multiplier=1.7, clip_norm=0.7)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = lambda batch: LOSS(model(batch[0]), batch[1])  # noqa: E731
    engine = PrivacyEngine(model, optimizer, losses, features, run)
    loader = engine.batches()
    for step, batch in enumerate(loader, start=1):
        engine.backward(batch)
        optimizer.step()
        taken = run.replace(steps=step, step_size=sizes[:step])
        assert engine.epsilon(1e-5, steps_fixed_in_advance=True) == lethe.certify(taken, 1e-5).epsilon


DELTA = 1e-5
STEPS = 6


def by_loop(run: lethe.Run, model: nn.Module, **options: Any) -> lethe.Run:
    optimizer = torch.optim.SGD(model.parameters(), lr=float(run.step_sizes[0]))
    engine = PrivacyEngine(model, optimizer, lambda batch: LOSS(model(batch[0]), batch[1]), data(), run, **arguments(options))
    loader = engine.batches()
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
    engine.record()
    return engine.recorded_run()


def by_fit(run: lethe.Run, model: nn.Module, **options: Any) -> lethe.Run:
    return fit(model, LOSS, data(), run, **arguments(options)).run


WAYS = {"fit": by_fit, "loop": by_loop}


@pytest.mark.parametrize("release", ["all", "last"])
def test_a_head_walks_by_the_strategy_s_noise(release: str) -> None:
    """Features without length have no gradient: what is left of the head is C^-1 z, step by step, and its certificate says so."""
    loss = lethe.losses.Softmax(feature_norm=1.0, evidence="enforced")
    run = run_of(loss=loss, clip_norm=None, release=release, step_size=[0.5, 0.1, 0.2, 0.5, 0.5, 0.3])
    head = nn.Linear(3, 2, bias=False).double()
    start, nothing = head.weight.detach().clone(), torch.zeros(100, 3, dtype=torch.float64)
    fitted = fit_head(nn.Identity(), head, (nothing, data()[1]), run, noise_generator=torch.Generator().manual_seed(3))
    drawing = torch.Generator().manual_seed(3)
    fresh = np.array([torch.randn(3, 2, generator=drawing, dtype=torch.float64).reshape(-1).numpy() for _ in range(STEPS)])
    assert run.noise is not None
    on_sums = np.linalg.inv(as_matrix(run.noise.strategy(STEPS))) @ fresh * (5.0 * run.clip_bound)
    moved = (run.step_sizes[:, None] * on_sums / 10).sum(0).reshape(3, 2).T
    assert (head.weight.detach() - start).numpy() == pytest.approx(moved, rel=1e-9)
    assert as_planned(fitted.run) == run
    certified = lethe.certify(fitted.run.replace(seeded=False), DELTA)
    assert (certified.theorem, certified.epsilon) == (
        "correlated-noise",
        pytest.approx(lethe.guarantees.GDP(float(slot_mus(run).max())).epsilon(DELTA), rel=1e-9),
    )


@pytest.mark.parametrize("way", WAYS)
def test_several_groups_are_drawn_from_in_turn(way: str) -> None:
    """The recorder refuses a batch of another group; the loggers' settings name the groups and the strategy."""
    run = run_of(batches=lethe.batches.CyclicPoisson(10, groups=5))
    recorded = WAYS[way](run, network(), isolation="declared")
    assert recorded.replace(loss=run.loss) == run
    certificate = lethe.certify(run, DELTA)
    assert certificate.theorem == "correlated-sampled"
    known = settings_of(recorded, DELTA, certificate.epsilon)
    assert (known["batches"], known["groups"], known["noise"]) == ("cyclic_poisson", 5.0, "banded_toeplitz")
    assert not {"groups", "noise"} & settings_of(run_of(noise=None), DELTA, None).keys()


class Heard(Callback):
    def __init__(self) -> None:
        self.begun: list[lethe.Run] = []
        self.steps: list[StepEnd] = []
        self.ends: list[TrainingEnd] = []

    def on_train_begin(self, run: lethe.Run, *, steps_done: int) -> None:
        self.begun.append(run)

    def on_step_end(self, step: StepEnd) -> None:
        self.steps.append(step)

    def on_train_end(self, end: TrainingEnd) -> None:
        self.ends.append(end)


@pytest.mark.parametrize("way", [*WAYS, "linear"])
def test_callbacks_are_told_what_is_drawn_anew_and_of_the_run_as_it_is(way: str) -> None:
    heard, run = Heard(), run_of()
    if way == "linear":
        run = run_of(loss=lethe.losses.Softmax(feature_norm=1.0), clip_norm=None)
        fit_linear(run, data()[0].numpy(), data()[1].numpy(), classes=2, callbacks=heard)
    else:
        WAYS[way](run, network(), callbacks=heard)
    assert heard.begun == [run]
    stds = run.step_sizes * 5.0 * run.clip_bound / 10
    assert [step.noise_std for step in heard.steps] == pytest.approx(stds.tolist(), rel=1e-15)
    assert {step.noise_multiplier for step in heard.steps} == {5.0}
    (end,) = heard.ends
    assert end.run.noise == run.noise
    assert end.record is not None
    assert lethe.certify(end.record, DELTA).epsilon == lethe.certify(run, DELTA).epsilon


def test_the_epsilon_so_far_is_that_of_the_strategy_so_far(tmp_path: Path) -> None:
    """Of a matrix that of the whole plan, since a matrix is for its own number of steps."""
    run, matrix = run_of(), run_of(noise=LowerTriangular.saved(binary_tree(STEPS), tmp_path / "tree.npy"))
    for asked, known in ((run, lambda step: run.replace(steps=step)), (matrix, lambda step: matrix)):
        heard = Heard()
        by_fit(asked, network(), callbacks=heard)
        shown = EpsilonSoFar(asked, DELTA)
        for step in heard.steps:
            assert shown.at(step) == pytest.approx(lethe.certify(known(step.step), DELTA).epsilon, rel=1e-12)
