"""Correlated noise behind every door of training: heads, callbacks, ledgers, and the last iterate alone. Numbers by replay of C^-1 z."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_head, fit_linear
from helpers import as_planned, make_run
from torch import nn

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.integrations.logging.description import EpsilonSoFar, settings_of
from lethe.run.noise import LowerTriangular
from lethe.train import Callback, PrivacyEngine, fit
from lethe.train.callbacks.callback import StepEnd, TrainingEnd

DELTA = 1e-5
BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
LOSS = nn.CrossEntropyLoss(reduction="none")
RECORDS, STEPS = 100, 6


def run_of(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"noise": BANDED, "clip_norm": 1.0, "loss": {"kind": "unknown"}, "release": "all", "steps": STEPS}
    return make_run(**{**fields, **changes})


def data() -> tuple[torch.Tensor, torch.Tensor]:
    features = torch.randn(RECORDS, 3, generator=torch.Generator().manual_seed(0))
    return features, (features[:, 0] > 0).long()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


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


def mu_of(run: lethe.Run) -> float:
    """By the definition alone; a record is replaced."""
    assert run.noise is not None
    assert isinstance(run.noise_multiplier, float)
    factor = 2.0 if run.neighbours == "replace_one" else 1.0
    return factor * sensitivity(as_matrix(run.noise.strategy(run.total_steps)), run.steps_per_pass) / run.noise_multiplier


@pytest.mark.parametrize("release", ["all", "last"])
def test_a_head_walks_by_the_strategy_s_noise(release: str) -> None:
    """Features without length have no gradient: what is left of the head is C^-1 z, step by step, and its certificate says so."""
    loss = lethe.losses.Softmax(feature_norm=1.0, evidence="enforced")
    run = run_of(loss=loss, clip_norm=None, release=release, step_size=[0.5, 0.1, 0.2, 0.5, 0.5, 0.3])
    head = nn.Linear(3, 2, bias=False).double()
    start, nothing = head.weight.detach().clone(), torch.zeros(RECORDS, 3, dtype=torch.float64)
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
        pytest.approx(lethe.guarantees.GDP(mu_of(run)).epsilon(DELTA), rel=1e-9),
    )


@pytest.mark.slow
def test_the_last_iterate_is_that_of_a_training_that_releases_all() -> None:
    """But for 6 roundings of float32, which iterates are not kept in where they are not released; and for the same epsilon."""
    models, runs = [network(), network()], [run_of(release="all"), run_of(release="last")]
    recorded = [by_fit(run, model, seed=4) for run, model in zip(runs, models, strict=True)]
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert float((one - other).detach().abs().max()) <= 6 * 2**-23 * float(one.detach().abs().max())
    for run, done in zip(runs, recorded, strict=True):
        assert as_planned(done).replace(loss=run.loss) == run
    certificates = [lethe.certify(run, DELTA) for run in runs]
    assert certificates[1].epsilon == certificates[0].epsilon
    assert certificates[1].theorem == "correlated-noise"
    said = [[one.detail for one in certificate.findings if one.name == "last iterate"] for certificate in certificates]
    assert said == [[], ["a function of all iterates, which are certified: it costs what release: all costs"]]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_epsilon_so_far_is_that_of_the_strategy_so_far(tmp_path: Path) -> None:
    """Of a matrix that of the whole plan, since a matrix is for its own number of steps."""
    run, matrix = run_of(), run_of(noise=LowerTriangular.saved(binary_tree(STEPS), tmp_path / "tree.npy"))
    for asked, known in ((run, lambda step: run.replace(steps=step)), (matrix, lambda step: matrix)):
        heard = Heard()
        by_fit(asked, network(), callbacks=heard)
        shown = EpsilonSoFar(asked, DELTA)
        for step in heard.steps:
            assert shown.at(step) == pytest.approx(lethe.certify(known(step.step), DELTA).epsilon, rel=1e-12)


def test_the_beginning_of_a_matrix_is_no_more_sensitive_than_the_whole() -> None:
    random = np.random.default_rng(2)
    for _ in range(200):
        steps, slots = int(random.integers(2, 10)), int(random.integers(1, 5))
        matrix = np.tril(random.uniform(0.1, 1.0, size=(steps, steps)))
        taken = int(random.integers(1, steps))
        assert sensitivity(matrix[:taken, :taken], min(slots, taken)) <= sensitivity(matrix, slots) * (1 + 1e-12)
