import io
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import DESIGNS, SCHEDULES, as_planned
from hypothesis import given
from hypothesis import strategies as st
from networks import make_network_run
from problems import executed, make_problem, make_run

from lethe.errors import HypothesisError
from lethe.run.run import Run
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches


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


@pytest.mark.slow
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


@pytest.mark.slow
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
