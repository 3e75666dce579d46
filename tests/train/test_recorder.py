"""The run that was executed is the one that is recorded, of plain passes and of passes that end at an average."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import DESIGNS, SCHEDULES, SLOT_DESIGNS, as_planned
from hypothesis import given
from hypothesis import strategies as st
from networks import make_network_run
from problems import executed, make_loss, make_problem, make_run

from lethe.errors import HypothesisError
from lethe.run.losses.linear import require_linear_loss
from lethe.run.run import Run
from lethe.train import Fitted
from lethe.train.core.generators import seeded_generators
from lethe.train.core.proximal import proximal_step
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.models import LinearPredictor, prepare_features
from lethe.train.network.noise.gaussian import NetworkNoise


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


@pytest.mark.parametrize("noise_at", ["every_step", "pass_ends"])
@pytest.mark.parametrize("spoiled", ["half the noise once", "one ulp less noise", "one step less", "one larger step"])
def test_what_was_not_planned_is_recorded(monkeypatch: pytest.MonkeyPatch, spoiled: str, noise_at: str) -> None:
    plan = make_run(noise_at=noise_at)
    sizes, stds = plan.step_sizes.copy(), plan.noise_stds.copy()
    assert stds[7] > 0  # step 8 ends pass 2
    match spoiled:
        case "half the noise once":
            stds[7] /= 2
        case "one ulp less noise":
            stds[7] = np.nextafter(stds[7], 0.0)
        case "one step less":
            sizes, stds = sizes[:-1], stds[:-1]
        case _:
            sizes[2] *= 1.5
    run = executed(monkeypatch, plan, step_sizes=sizes, noise_stds=stds)
    assert run != plan
    assert run.step_sizes.tolist() == sizes.tolist()
    assert (run.noise_stds <= stds).all()
    # a multiplier times the unit cannot hit every number; it misses by at most two roundings
    assert run.noise_stds == pytest.approx(stds, rel=5e-16)


def spoiled_batches(how: str, design: str) -> list[Batch]:
    """The batches of a plan of 12 steps, the first one too large, one of them twice, or drawn anew in each pass."""
    drawn = list(draw_batches(make_run(design="shuffled" if how == "anew" else design, steps=12), torch.Generator().manual_seed(1)))
    return [slice(0, 6), *drawn[1:]] if how == "too large" else [drawn[0], drawn[0], *drawn[2:]] if how == "again" else drawn


@pytest.mark.parametrize(
    ("design", "how", "step"),
    [
        ("cyclic", "too large", 1),
        ("cyclic", "again", 2),
        ("cyclic", "anew", 5),
        ("shuffled_once", "anew", 5),
        ("shuffled_once", "again", 2),
        ("shuffled", "again", 2),
        ("balls_in_bins", "again", 2),
        ("without_replacement", "too large", 1),
        ("full", "too large", 1),
    ],
)
def test_what_no_run_describes_is_refused(monkeypatch: pytest.MonkeyPatch, design: str, how: str, step: int) -> None:
    with pytest.raises(HypothesisError, match=f"the batch of step {step} is not of the design {design}"):
        executed(monkeypatch, make_run(design=design, steps=12), batches=spoiled_batches(how, design))


@pytest.mark.parametrize(
    ("batches", "others"),
    [
        ({"design": "poisson", "size": 5, "truncate_at": 8}, torch.arange(9)),
        ({"design": "cyclic_poisson", "size": 5, "groups": 4}, torch.tensor([0, 4])),
        ({"design": "cyclic_poisson", "size": 5, "groups": 4}, torch.tensor([1, 2])),
    ],
)
def test_a_random_batch_that_its_design_never_draws_is_refused(batches: dict[str, Any], others: Batch) -> None:
    """More records than it is cut at, or of another group than that of the step."""
    plan = make_network_run(batches=batches, steps=8, noise_multiplier=1.0)
    drawn = list(draw_batches(plan, torch.Generator().manual_seed(1)))
    for spoiled in (False, True):
        recorder = Recorder(plan, seeded=False)
        for step, batch in enumerate(drawn):
            note(recorder, plan, step, others if spoiled and step == 5 else batch)
        if not spoiled:
            assert recorder.run(plan, enforced=False) == plan
    with pytest.raises(HypothesisError, match="the batch of step 6 is not of the design"):
        recorder.run(plan, enforced=False)


@given(stds=st.lists(st.floats(1e-6, 1e6), min_size=12, max_size=12), size=st.floats(1e-3, 10.0), clip_norm=st.floats(0.1, 10.0))
def test_a_recorded_list_never_claims_more_noise_than_was_added(stds: list[float], size: float, clip_norm: float) -> None:
    plan = make_run(step_size=size, clip_norm=clip_norm)
    recorder = Recorder(plan, seeded=False)
    for batch, noise_std in zip(draw_batches(plan, torch.Generator()), stds, strict=True):
        recorder.note(step_size=size, noise_std=noise_std, batch=batch)
    run = recorder.run(plan, enforced=True)
    assert (run.noise_stds <= np.array(stds)).all()
    assert run.noise_stds == pytest.approx(np.array(stds), rel=5e-16)  # two roundings


def note(recorder: Recorder, run: Run, step: int, batch: Batch) -> None:
    recorder.note(step_size=float(run.step_sizes[step]), noise_std=float(run.noise_stds[step]), batch=batch)


def through_a_file(recorder: Recorder, run: Run) -> Recorder:
    file = io.BytesIO()
    torch.save(recorder.state_dict(), file)
    file.seek(0)
    again = Recorder(run, seeded=False)
    again.load_state_dict(torch.load(file, weights_only=True))
    return again


@given(
    design=st.sampled_from(DESIGNS),
    changes=st.sampled_from([{}, {"noise_at": "pass_ends"}, {"step_size": {"schedule": "exponential", "first": 0.5, "ratio": 0.9}}]),
    cuts=st.sets(st.integers(0, 9), max_size=4),
)
def test_cut_anywhere_recorded_is_planned(design: str, changes: dict[str, Any], cuts: set[int]) -> None:
    run = make_network_run(design, noise_multiplier=1.0, **changes)
    recorder = Recorder(run, seeded=False)
    for step, batch in enumerate(draw_batches(run, torch.Generator().manual_seed(1))):
        if step in cuts:
            recorder = through_a_file(recorder, run)
            assert recorder.steps == step
        note(recorder, run, step, batch)
    assert through_a_file(recorder, run).run(run, enforced=False) == run


KINDS = ("softmax_regression", "logistic_regression", "least_squares")
BOTH = [{"kind": "ridge", "strength": 0.3}, {"kind": "ball", "radius": 0.4}]
WEIGHTS: tuple[Any, ...] = (1.0, [0.1, 0.2, 0.0, 0.7], {"schedule": "exponential", "first": 1.0, "ratio": 2.0})


def averaging_run(kind: str = "softmax_regression", weights: Any = 1.0, **changes: Any) -> Run:
    return make_run(kind, **{"noise_at": "pass_ends", "pass_weights": weights, **changes})


def fit(run: Run, **options: Any) -> Fitted[LinearPredictor]:
    problem = make_problem(run.loss.kind)
    return fit_linear(run, problem.features, problem.targets, **{"classes": problem.classes, "seed": 0, **options})


@torch.inference_mode()
def written_out(run: Run) -> np.ndarray:
    """x_e = prox(sum_k omega_k y_k + nu_e), u_k = prox(y_k), y_k = u_{k-1} - lambda_k g_k: pass by pass, and all y_k kept."""
    problem = make_problem(run.loss.kind)
    loss = require_linear_loss(run.loss).for_classes(problem.classes)
    batch_generator, noise_generator = seeded_generators(0, (torch.device("cpu"), torch.device("cpu")))
    rows = prepare_features(
        problem.features, feature_norm=1.5, intercept=loss.intercept, dtype=torch.float64, device=torch.device("cpu")
    ).rows
    targets = torch.tensor(problem.targets).reshape(-1, 1)
    model = LinearModel(loss, rows, targets, clip_norm=run.clip_norm)
    prox, noise = proximal_step(run.regularisers), NetworkNoise(noise_generator)
    batches, weights = list(draw_batches(run, batch_generator)), run.pass_averages
    assert weights is not None
    x = torch.zeros(rows.shape[1], loss.outputs, dtype=torch.float64)
    for first in range(0, run.total_steps, run.steps_per_pass):
        u, ys = x, []
        for step in range(first, first + run.steps_per_pass):
            ys.append(u + model.clipped_gradient_sum(u, batches[step]) * (-float(run.step_sizes[step]) / run.batch_size))
            u = prox(ys[-1], float(run.step_sizes[step]))
        mean = sum(weight * y for weight, y in zip(weights.tolist(), ys, strict=True) if weight > 0)
        last = first + run.steps_per_pass - 1
        assert isinstance(mean, torch.Tensor)
        noise.add_to([mean], float(run.noise_stds[last]))
        x = prox(mean, float(run.step_sizes[last]))
    return x.numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_it_is_the_loop_as_written_bit_for_bit(kind: str, weights: Any) -> None:
    schedule = {"schedule": "time_decay", "first": 0.4, "rate": 0.1}
    run = averaging_run(kind, weights, step_size=schedule, regulariser=BOTH, loss=make_loss(kind, intercept=True))
    trained = fit(run)
    assert (np.vstack([trained.model.weights, trained.model.intercept]) == written_out(run)).all()


@pytest.mark.parametrize("design", SLOT_DESIGNS)
def test_every_fixed_design_is_averaged(design: str) -> None:
    run = averaging_run(design=design)
    assert (fit(run).model.weights == written_out(run)).all()
    assert not np.array_equal(fit(run).model.weights, fit(run.replace(pass_weights=None)).model.weights)


def test_other_noise_at_pass_ends_is_recorded_and_noise_inside_a_pass_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = averaging_run()
    less = plan.noise_stds.copy()
    less[7] /= 2
    run = executed(monkeypatch, plan, noise_stds=less)
    assert run.pass_weights == plan.pass_weights
    assert (run.noise_stds <= less).all()
    assert run.noise_stds == pytest.approx(less, rel=5e-16)  # two roundings
    less[5] = 0.1
    with pytest.raises(HypothesisError, match="noise inside"):
        executed(monkeypatch, plan, noise_stds=less)


def test_an_unfinished_pass_is_not_recorded() -> None:
    plan = averaging_run()
    recorder = Recorder(plan, seeded=False)
    for batch in list(draw_batches(plan, torch.Generator()))[:6]:
        recorder.note(step_size=0.4, noise_std=0.0, batch=batch)
    with pytest.raises(HypothesisError, match="unfinished"):
        recorder.run(plan, enforced=True)
