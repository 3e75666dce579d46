"""Linear models, networks, heads and loops with correlated noise: what is certified is added to the sums, recorded and told."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_head, fit_linear
from helpers import as_planned, make_run, with_fresh_noise
from strategies import BANDED, DELTA, correlated_run, noises, strategy_of
from torch import nn

import lethe
from lethe.calculus.correlated.matrices import binary_tree
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.integrations.logging.run_logger import EpsilonSoFar, settings_of
from lethe.run.noise import LowerTriangular
from lethe.theorems.correlated_noise import slot_mus
from lethe.train import Callback, PrivacyEngine, TrainOptions, fit
from lethe.train.callbacks.callback import StepEnd, TrainingEnd
from lethe.train.linear.loop import linear_noise
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise

LOSS = nn.CrossEntropyLoss(reduction="none")
STEPS, SIZES = 6, [0.5, 0.1, 0.2, 0.5, 0.5, 0.3]
FEATURES = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
DATA = (FEATURES, (FEATURES[:, 0] > 0).long())


def run_of(noise: Any = BANDED, **changes: Any) -> lethe.Run:
    return correlated_run(noise, **{"steps": STEPS, **changes})


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def on_sums(run: lethe.Run, fresh: np.ndarray) -> np.ndarray:
    """What is added to the sums, by hand, of the draws of each step, shape (T, ...), divided by the batch size."""
    mixed = np.einsum("ts,s...->t...", np.linalg.inv(strategy_of(run)), fresh)
    return mixed * run.uncorrelated.noise_multipliers[0] * run.clip_bound / run.batch_size


@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_training_adds_that_noise_to_the_sums(momentum: float | None) -> None:
    """A loss without gradient: the model walks by the correlated noise alone, over b, as SGD takes it."""
    run, model = run_of(step_size=SIZES if momentum is None else 0.2), nn.Linear(3, 2, bias=False).double()
    start = model.weight.detach().clone()
    optimizer = None if momentum is None else torch.optim.SGD(model.parameters(), lr=0.2, momentum=momentum)
    options = TrainOptions(noise_generator=np.random.default_rng(3), isolation="declared")
    data = (FEATURES.double(), DATA[1])
    fitted = fit(model, lambda outputs, targets: 0.0 * outputs.sum(1), data, run, optimizer=optimizer, options=options)
    drawing, fresh = NetworkNoise(np.random.default_rng(3)), torch.zeros(STEPS, 6, dtype=torch.float64)
    for step in fresh:
        drawing.add_to([step], 1.0)
    place, velocity = start.numpy().reshape(-1).copy(), np.zeros(6)
    for size, noise in zip(run.step_sizes, on_sums(run, fresh.numpy()), strict=True):
        velocity = (momentum or 0.0) * velocity + noise
        place -= size * velocity
    assert model.weight.detach().numpy().reshape(-1) == pytest.approx(place, rel=1e-9)
    assert fitted.run.noise == run.noise


@pytest.mark.parametrize("release", ["all", "last"])
def test_a_head_walks_by_the_strategy_s_noise(release: str) -> None:
    """Features without length have no gradient: what is left of the head is C^-1 z, step by step, and its certificate says so."""
    loss = lethe.losses.Softmax(feature_norm=1.0, evidence="enforced")
    run = run_of(loss=loss, clip_norm=None, release=release, step_size=SIZES)
    head = nn.Linear(3, 2, bias=False).double()
    start, nothing = head.weight.detach().clone(), torch.zeros(100, 3, dtype=torch.float64)
    fitted = fit_head(nn.Identity(), head, (nothing, DATA[1]), run, noise_generator=torch.Generator().manual_seed(3))
    drawing = torch.Generator().manual_seed(3)
    fresh = np.stack([torch.randn(3, 2, generator=drawing, dtype=torch.float64).numpy() for _ in range(STEPS)])
    moved = np.einsum("t,tdk->kd", run.step_sizes, on_sums(run, fresh))
    assert (head.weight.detach() - start).numpy() == pytest.approx(moved, rel=1e-9)
    assert as_planned(fitted.run) == run
    certified = lethe.certify(fitted.run.replace(seeded=False), DELTA)
    exact = lethe.guarantees.GDP(float(slot_mus(run).max())).epsilon(DELTA)
    assert (certified.theorem, certified.epsilon) == ("correlated-noise", pytest.approx(exact, rel=1e-9))


def test_a_linear_model_walks_by_it_and_is_recorded_as_planned(tmp_path: Path) -> None:
    """Without signal (features 0) the model is minus the sum of step noises; the same seed, drawn and correlated by hand."""
    features, targets = (column.numpy() for column in DATA)
    for noise in noises(tmp_path):
        run = make_run(noise=noise, steps=STEPS, step_size=SIZES, release="all")
        seeded = {"classes": 2, "noise_generator": torch.Generator().manual_seed(3)}
        fitted = fit_linear(run, np.zeros((100, 3)), np.zeros(100, dtype=int), **seeded)
        generator = torch.Generator().manual_seed(3)
        fresh = np.stack([torch.randn(3, 2, generator=generator, dtype=torch.float64).numpy() for _ in range(STEPS)])
        assert fitted.model.weights == pytest.approx(np.einsum("t,tdk->dk", run.step_sizes, on_sums(run, fresh)), rel=1e-9)
        planned = lethe.plan(run.replace(noise_multiplier=None, step_size=0.5), epsilon=2.0, delta=DELTA)
        planned = planned.replace(loss=planned.loss.model_copy(update={"evidence": "enforced"}))
        certificate = lethe.certify(fit_linear(planned, features, targets, classes=2), DELTA)
        assert certificate.run == planned
        assert certificate.epsilon <= 2.0
        assert certificate.theorem == "correlated-noise"
        assert certificate.seal is not None
    silent = make_run(noise=BANDED, noise_multiplier=0.0)
    fitted, plain = (fit_linear(run, features, targets, classes=2) for run in (silent, silent.uncorrelated))
    assert fitted.run.noise == silent.noise
    assert (fitted.model.weights == plain.model.weights).all()


def test_noise_that_outgrows_its_draws_is_refused(tmp_path: Path) -> None:
    """C^{-1} of (1, 2) doubles what was there: after 50 steps the fresh draw is beyond the 53 bits of what it is added to."""
    features, targets = (column.numpy() for column in DATA)

    def banded(*coefficients: float) -> lethe.Run:
        return make_run(noise={"kind": "banded_toeplitz", "coefficients": coefficients})

    for coefficients in ([1.0, 2.0], [1.0, 2.0] * 20):
        assert lethe.certify(banded(*coefficients), DELTA).epsilon > 0
        with pytest.raises(LetheError, match="drowns in the rounding"):
            fit_linear(banded(*coefficients), features, targets, classes=2, dtype="float32")
    for coefficients in ([1.0, 1.0], [1.0, 1.3], [1.0, 0.9, 0.8, 0.7]):
        fit_linear(banded(*coefficients), features, targets, classes=2)
    model = network()
    before = copy.deepcopy(model.state_dict())
    for run, options, said in (
        (run_of(), {"noise_policy": lambda observed: 1.0}, "noise_policy"),
        (run_of(banded(1.0, 9.0).noise, steps=20), {"checkpoints": tmp_path / "folder"}, "drowns"),
    ):
        with pytest.raises(LetheError, match=said):
            fit(model, LOSS, DATA, run, **arguments(options))
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not (tmp_path / "folder" / "checkpoint.pt").exists()


def test_noise_that_was_drawn_elsewhere_too_has_no_run_and_no_copy() -> None:
    run = make_run(noise=BANDED, steps=6)
    drawing, noisy = linear_noise(run, NetworkNoise(torch.Generator().manual_seed(1))), [torch.zeros(2, dtype=torch.float64)]
    for draws in range(1, 8):
        drawing.add_to(noisy, 1.0)
        if draws == 6:
            assert drawing.executed(run.uncorrelated) == run
        elif draws in (5, 7):
            with pytest.raises(HypothesisError, match=f"{draws} times"):
                drawing.executed(run.uncorrelated)
    with pytest.raises(InputError, match="copy"):
        copy.deepcopy(CorrelatedNetworkNoise(run_of(), NetworkNoise(np.random.default_rng(1)), torch.float64))


def loop(run: lethe.Run, model: nn.Module, optimizer: Any = None, steps: int = STEPS, each: Any = None, **options: Any) -> PrivacyEngine:
    """A loop of one's own, of so many steps; `each` is called after each of them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=float(run.step_sizes[0])) if optimizer is None else optimizer
    engine = PrivacyEngine(model, optimizer, lambda batch: LOSS(model(batch[0]), batch[1]), DATA, run, **arguments(options))
    loader = engine.batches()
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
        if each is not None:
            each(engine)
        if engine.steps == steps < STEPS:
            break
    return engine


def by_loop(run: lethe.Run, model: nn.Module, **options: Any) -> lethe.Run:
    engine = loop(run, model, **options)
    engine.record()
    return engine.recorded_run()


def by_fit(run: lethe.Run, model: nn.Module, **options: Any) -> lethe.Run:
    return fit(model, LOSS, DATA, run, **arguments(options)).run


WAYS = {"fit": by_fit, "loop": by_loop}


def test_a_loop_of_one_s_own_takes_the_same_steps_as_fit() -> None:
    for make in (lambda given: torch.optim.SGD(given, lr=0.5), lambda given: torch.optim.Adam(given, lr=0.1)):
        models = [network(), network()]
        fitted = fit(models[0], LOSS, DATA, run_of(), optimizer=make(models[0].parameters()), **arguments({"seed": 4}))
        engine = loop(run_of(), models[1], make(models[1].parameters()), seed=4)
        assert all(torch.equal(*pair) for pair in zip(models[0].parameters(), models[1].parameters(), strict=True))
        assert engine.recorded_run() == fitted.run
        assert with_fresh_noise(fitted.run) == run_of()


def test_a_loop_is_certified_as_its_run_is(tmp_path: Path) -> None:
    """Half of it, and all of it: a Toeplitz strategy is one for every number of steps, a matrix for its own alone."""
    run, model = run_of(), network()
    engine = loop(run, model, torch.optim.Adam(model.parameters()), steps=3)
    three = lethe.certify(run.replace(steps=3), DELTA).epsilon
    assert engine.epsilon(DELTA, steps_fixed_in_advance=True) == three
    assert engine.recorded_run() == run
    taken = engine.recorded_run(steps_fixed_in_advance=True)
    assert (taken.total_steps, taken.noise) == (3, run.noise)
    assert lethe.certify(taken, DELTA).epsilon == pytest.approx(three, rel=1e-12)
    certificate = lethe.certify(engine.record(), DELTA)
    assert (certificate.epsilon, certificate.theorem) == (lethe.certify(run, DELTA).epsilon, "correlated-noise")
    assert certificate.seal is not None
    run = run_of(LowerTriangular.saved(binary_tree(STEPS), tmp_path / "tree.npy"))
    engine = loop(run, model, torch.optim.Adam(model.parameters()), steps=3)
    assert engine.recorded_run() == run
    assert engine.epsilon(DELTA, steps_fixed_in_advance=True) == lethe.certify(run, DELTA).epsilon  # of the whole plan
    with pytest.raises(InputError, match="for 6 steps; the run has 3"):
        engine.recorded_run(steps_fixed_in_advance=True)


def test_a_loop_with_several_step_sizes_says_what_it_has_spent_so_far() -> None:
    """Noise divided by these step sizes differs in its last bits: it is that of the plan, which has one number."""
    sizes = np.random.default_rng(0).uniform(0.001, 1.0, STEPS).tolist()
    run = run_of(step_size=sizes, noise_multiplier=1.7, clip_norm=0.7)
    said = []
    loop(run, network(), each=lambda engine: said.append(engine.epsilon(DELTA, steps_fixed_in_advance=True)))
    assert said == [lethe.certify(run.replace(steps=step, step_size=sizes[:step]), DELTA).epsilon for step in range(1, STEPS + 1)]


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
    assert not {"groups", "noise"} & settings_of(run_of(None), DELTA, None).keys()


class Heard(Callback):
    def __init__(self) -> None:
        self.begun, self.steps, self.ends = list[lethe.Run](), list[StepEnd](), list[TrainingEnd]()

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
        fit_linear(run, DATA[0].numpy(), DATA[1].numpy(), classes=2, callbacks=heard)
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
    run, matrix = run_of(), run_of(LowerTriangular.saved(binary_tree(STEPS), tmp_path / "tree.npy"))
    for asked, known in ((run, lambda step: run.replace(steps=step)), (matrix, lambda step: matrix)):
        heard = Heard()
        by_fit(asked, network(), callbacks=heard)
        shown = EpsilonSoFar(asked, DELTA)
        for step in heard.steps:
            assert shown.at(step) == pytest.approx(lethe.certify(known(step.step), DELTA).epsilon, rel=1e-12)
