from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import DESIGNS, SCHEDULES, as_planned
from hypothesis import given
from hypothesis import strategies as st
from problems import RECORDS, make_loss, make_problem, make_run

from lethe.errors import HypothesisError
from lethe.run.run import Run
from lethe.train import fit_linear
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches
from lethe.train.linear import loop

KINDS = ("softmax_regression", "logistic_regression", "least_squares")


def recorded(run: Run) -> Run:
    problem = make_problem(run.loss.kind)
    return fit_linear(run, problem.features, problem.targets, classes=problem.classes, seed=0).run


@pytest.mark.sampled(6)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("noise_at", ["every_step", "pass_ends"])
@pytest.mark.parametrize("length", [{"passes": 3}, {"steps": 6}])
def test_recorded_is_planned(design: str, noise_at: str, length: dict[str, int]) -> None:
    for schedule in [one for one in SCHEDULES if not isinstance(one, list)]:
        plan = make_run(design=design, noise_at=noise_at, step_size=schedule, noise_multiplier=schedule, **length)
        assert as_planned(recorded(plan)) == plan


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip_norm", [None, 0.1, 50.0])
@pytest.mark.parametrize(
    "regulariser", [None, {"kind": "ridge", "strength": 0.2}, [{"kind": "l1", "strength": 0.01}, {"kind": "ball", "radius": 2.0}]]
)
def test_recorded_is_planned_for_every_model(kind: str, clip_norm: float | None, regulariser: Any) -> None:
    plan = make_run(kind, clip_norm=clip_norm, regulariser=regulariser, loss=make_loss(kind, intercept=True))
    assert as_planned(recorded(plan)) == plan


def test_recorded_is_planned_with_lists_and_without_any_noise() -> None:
    sizes = [0.1 * (step + 1) for step in range(12)]
    plan = make_run(step_size=sizes, noise_multiplier=[0.0, 1.0, 1 / 3] * 4)
    assert as_planned(recorded(plan)) == plan
    plan = make_run(noise_multiplier=[1.0, 0.0, 2.0], noise_at="pass_ends", release="all", neighbours="zero_out")
    assert as_planned(recorded(plan)) == plan
    silent = make_run(noise_multiplier=0.0)
    assert as_planned(recorded(silent)) == silent


def test_a_declared_norm_is_recorded_as_enforced_because_the_trainer_projects() -> None:
    plan = make_run(loss=make_loss("softmax_regression", evidence="declared"))
    run = recorded(plan)
    assert run != plan
    assert run.loss.evidence == "enforced"
    assert as_planned(run).replace(loss=plan.loss) == plan


Sabotage = Callable[[dict[str, Any]], None]


def half_the_noise_once(arguments: dict[str, Any]) -> None:
    arguments["noise_stds"][7] /= 2


def one_ulp_less_noise(arguments: dict[str, Any]) -> None:
    arguments["noise_stds"][7] = float(np.nextafter(arguments["noise_stds"][7], 0.0))


def one_step_less(arguments: dict[str, Any]) -> None:
    arguments["batches"] = list(arguments["batches"])[:-1]
    arguments["step_sizes"], arguments["noise_stds"] = arguments["step_sizes"][:-1], arguments["noise_stds"][:-1]


def one_larger_step(arguments: dict[str, Any]) -> None:
    arguments["step_sizes"][2] *= 1.5


def sabotaged(monkeypatch: pytest.MonkeyPatch, plan: Run, spoil: Sabotage) -> Run:
    descend = loop.descend
    names = descend.__code__.co_varnames[: descend.__code__.co_argcount]

    def spoiled(*arguments: Any) -> torch.Tensor:
        named = dict(zip(names, arguments, strict=True))
        spoil(named)
        return descend(**named)

    monkeypatch.setattr(loop, "descend", spoiled)
    return recorded(plan)


@pytest.mark.parametrize("noise_at", ["every_step", "pass_ends"])
@pytest.mark.parametrize("spoil", [half_the_noise_once, one_ulp_less_noise, one_step_less, one_larger_step])
def test_what_was_not_planned_is_recorded(monkeypatch: pytest.MonkeyPatch, spoil: Sabotage, noise_at: str) -> None:
    plan = make_run(noise_at=noise_at)
    executed: dict[str, Any] = {}

    def spoil_and_look(arguments: dict[str, Any]) -> None:
        spoil(arguments)
        executed.update(arguments)

    run = sabotaged(monkeypatch, plan, spoil_and_look)
    if noise_at == "pass_ends" and spoil is one_ulp_less_noise:
        assert plan.noise_stds[7] > 0  # step 8 ends pass 2, so the sabotage did something
    assert run != plan
    assert run.step_sizes.tolist() == executed["step_sizes"]
    assert (run.noise_stds <= np.array(executed["noise_stds"])).all()
    # a multiplier times the unit cannot hit every number; it misses by at most two roundings
    assert run.noise_stds == pytest.approx(np.array(executed["noise_stds"]), rel=5e-16)


def clip_at(clip_norm: float | None) -> Sabotage:
    def spoil(arguments: dict[str, Any]) -> None:
        arguments["model"].clip_norm = clip_norm

    return spoil


@pytest.mark.parametrize("clip_norm", [1.2, None])
def test_looser_clipping_is_recorded_with_its_larger_sensitivity(monkeypatch: pytest.MonkeyPatch, clip_norm: float | None) -> None:
    plan = make_run()
    run = sabotaged(monkeypatch, plan, clip_at(clip_norm))
    assert run.clip_norm == clip_norm
    assert (run.sensitivities >= 2 * plan.sensitivities * (1 - 1e-15)).all()  # 1.2 and 1.5 sqrt 2 are at least twice 0.6
    assert run.noise_stds == pytest.approx(plan.noise_stds, rel=5e-16)  # the noise was the planned one
    assert (run.noise_stds <= plan.noise_stds).all()


def another_divisor(arguments: dict[str, Any]) -> None:
    arguments["divisor"] = 3


def batch_too_large(arguments: dict[str, Any]) -> None:
    arguments["batches"] = [slice(0, 6), *list(arguments["batches"])[1:]]


def batch_again(arguments: dict[str, Any]) -> None:
    batches = list(arguments["batches"])
    arguments["batches"] = [batches[0], batches[0], *batches[2:]]


def reshuffled(arguments: dict[str, Any]) -> None:
    plan = make_run(design="shuffled")
    arguments["batches"] = list(draw_batches(plan, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    ("design", "spoil", "message"),
    [
        ("cyclic", another_divisor, "divided by"),
        ("cyclic", batch_too_large, "step 1 is not of the design cyclic"),
        ("cyclic", batch_again, "step 2 is not of the design cyclic"),
        ("cyclic", reshuffled, "step 5 is not of the design cyclic"),
        ("shuffled_once", reshuffled, "step 5 is not of the design shuffled_once"),
        ("shuffled_once", batch_again, "step 2"),
        ("shuffled", batch_again, "step 2"),
        ("balls_in_bins", batch_again, "step 2"),
        ("without_replacement", batch_too_large, "step 1"),
        ("full", batch_too_large, "step 1"),
    ],
)
def test_what_no_run_describes_is_refused(monkeypatch: pytest.MonkeyPatch, design: str, spoil: Sabotage, message: str) -> None:
    with pytest.raises(HypothesisError, match=message):
        sabotaged(monkeypatch, make_run(design=design, steps=12), spoil)


def test_nothing_executed_is_no_run() -> None:
    with pytest.raises(HypothesisError, match="no step"):
        Recorder(make_run(), seeded=False).run(make_run(), enforced=True)


def test_equal_batches_need_not_be_the_same_objects() -> None:
    plan = make_run(design="shuffled_once", loss=make_loss("softmax_regression"))
    recorder = Recorder(plan, seeded=False)
    for batch, noise_std in zip(draw_batches(plan, torch.Generator().manual_seed(0)), plan.noise_stds.tolist(), strict=True):
        assert isinstance(batch, torch.Tensor)
        recorder.note(step_size=0.4, noise_std=noise_std, clip_norm=0.6, divisor=5, batch=batch.clone())
    assert recorder.run(plan, enforced=True) == plan
    assert plan.records == RECORDS


@pytest.mark.slow
@given(stds=st.lists(st.floats(1e-6, 1e6), min_size=12, max_size=12), size=st.floats(1e-3, 10.0), clip_norm=st.floats(0.1, 10.0))
def test_a_recorded_list_never_claims_more_noise_than_was_added(stds: list[float], size: float, clip_norm: float) -> None:
    plan = make_run(step_size=size, clip_norm=clip_norm)
    recorder = Recorder(plan, seeded=False)
    for batch, noise_std in zip(draw_batches(plan, torch.Generator()), stds, strict=True):
        recorder.note(step_size=size, noise_std=noise_std, clip_norm=clip_norm, divisor=5, batch=batch)
    run = recorder.run(plan, enforced=True)
    assert (run.noise_stds <= np.array(stds)).all()
    assert run.noise_stds == pytest.approx(np.array(stds), rel=5e-16)  # two roundings
