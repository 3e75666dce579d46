"""The run that was executed is the one that is recorded: batches, noise, clipping, and whether its noise can be made again."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_head, fit_linear
from helpers import as_planned, with_fresh_noise
from helpers import make_run as make_any_run
from hypothesis import given
from hypothesis import strategies as st
from interrupted import Spy, make_kept_run, trained
from networks import CLASSES, COLUMNS, Loop, fit_network, flat, make_data, make_network, make_network_run
from problems import LOSSES, executed, make_problem, make_run
from torch import nn

import lethe
from lethe.calculus.upward_formatting import shown
from lethe.errors import HypothesisError
from lethe.run.losses import LOSSES as REGISTERED
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run
from lethe.train.checkpoints.file import read_checkpoint
from lethe.train.clip.groups import Group
from lethe.train.clip.rules.registry import per_layer
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches


@pytest.mark.parametrize("kind", LOSSES)
def test_every_kind_of_loss_is_trained_recorded_and_certified(kind: str) -> None:
    """With a number of classes that no bound depends on, which the run does not say; the data are not written to."""
    own, problem, run = make_problem(kind), make_problem(kind), make_run(kind, clip_norm=None)
    fitted = fit_linear(run, own.features, own.targets, classes=own.classes, seed=0)
    assert as_planned(fitted.run) == run
    assert (own.features.tolist(), own.targets.tolist()) == (problem.features.tolist(), problem.targets.tolist())
    assert fitted.diagnostics.projected == (np.linalg.norm(problem.features, axis=1) > 1.5).sum() > 0
    assert (fitted.diagnostics.records, fitted.diagnostics.steps, fitted.diagnostics.left_over) == (23, 12, 3)
    certificate = lethe.certify(with_fresh_noise(fitted.run), 1e-5)
    assert 0.0 < certificate.epsilon < np.inf
    assert certificate.theorem == "optimal-shift"  # of a convex loss the last iterate
    assert {name for name, loss in REGISTERED.items() if issubclass(loss, LinearLoss)} == set(LOSSES)


SPOILED, ENDS = ("half the noise once", "one ulp less noise", "one step less", "one larger step"), {"noise_at": "pass_ends"}
AVERAGED = (SPOILED[0], {**ENDS, "pass_weights": 1.0})


@pytest.mark.parametrize(("spoiled", "changes"), [*product(SPOILED, ({}, ENDS)), AVERAGED])
def test_what_was_not_planned_is_recorded(monkeypatch: pytest.MonkeyPatch, spoiled: str, changes: dict[str, Any]) -> None:
    plan = make_run(**changes)
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
        ("random_allocation", "again", 2),
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
            seen = others if spoiled and step == 5 else batch
            recorder.note(step_size=float(plan.step_sizes[step]), noise_std=float(plan.noise_stds[step]), batch=seen)
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


def test_noise_inside_a_pass_and_an_unfinished_pass_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_run(noise_at="pass_ends", pass_weights=1.0)
    other = plan.noise_stds.copy()
    other[5] = 0.1
    with pytest.raises(HypothesisError, match="noise inside"):
        executed(monkeypatch, plan, noise_stds=other)
    recorder = Recorder(plan, seeded=False)
    for batch in list(draw_batches(plan, torch.Generator()))[:6]:
        recorder.note(step_size=0.4, noise_std=0.0, batch=batch)
    with pytest.raises(HypothesisError, match="unfinished"):
        recorder.run(plan, enforced=True)


GROUPS = (Group(parameters=("0.*",), clip_norm=0.24), Group(parameters=("*",), clip_norm=0.32))
NORMS = (0.24, 0.32)
CUT = {"design": "poisson", "size": 5, "truncate_at": 7}


def by_fit(run: Run, **options: Any) -> tuple[Run, nn.Module]:
    model = make_network()
    return fit_network(run, model, **{"seed": 3, **options}).run, model


def by_engine(run: Run, **options: Any) -> tuple[Run, nn.Module]:
    loop = Loop(run, **{"seed": 3, **options})
    recorded = loop.whole()
    loop.engine.close()
    return recorded, loop.model


@pytest.mark.sampled(24)
@pytest.mark.parametrize("train", [by_fit, by_engine])
@pytest.mark.parametrize("method", [None, "clip", "normalise", "automatic"])
@pytest.mark.parametrize("groups", [None, GROUPS, "per_layer"])
def test_arguments_are_recorded_and_a_run_that_says_them_is_trained_alike(train: Any, method: str | None, groups: Any) -> None:
    plan = make_network_run(noise_multiplier=1.0)
    recorded, model = train(plan, method=method, clip_groups=groups)
    layers = tuple(group.clip_norm for group in per_layer(make_network(), plan.clip_norm or 0.0))
    assert len(layers) > 1
    norms = {None: None, "per_layer": layers}.get(groups, NORMS)
    said = plan.replace(clip_method=method or "clip", clip_groups=norms)
    assert with_fresh_noise(recorded) == said
    again, same = train(said, clip_groups=groups)
    assert with_fresh_noise(again) == said
    assert torch.equal(flat(model), flat(same))
    assert Run.from_document(recorded.to_document()) == recorded
    for word in ("clip_method", "clip_groups"):
        assert (word in recorded.to_document()) == (getattr(said, word) != getattr(plan, word))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("train", [by_fit, by_engine])
def test_a_method_that_the_plan_did_not_count_with_is_refused_and_one_that_it_did_is_certified(train: Any) -> None:
    loss = {"kind": "smooth", "smoothness": 1.0, "gradient_bound": 0.1}
    plan = make_network_run(noise_multiplier=1.0, loss=loss)
    with pytest.raises(HypothesisError, match="plan the run with clip_method: automatic"):
        train(plan, method="automatic")
    recorded, _ = train(plan.replace(clip_method="automatic"))
    assert recorded.record_bound == 0.4
    assert lethe.certify(with_fresh_noise(recorded), 1e-5).epsilon > lethe.certify(plan, 1e-5).epsilon


def test_groups_may_be_trained_for_the_last_iterate_at_the_constant_of_a_clipped_step() -> None:
    plan = make_network_run(
        "cyclic", noise_multiplier=1.0, release="last", loss={"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": 1.0}
    )
    recorded, _ = by_fit(plan, clip_groups=GROUPS)
    grouped, one = (lethe.certify(run, 1e-5, theorems=["optimal-shift"]) for run in (with_fresh_noise(recorded), plan))
    assert recorded.clip_groups == NORMS
    assert grouped.lipschitz is not None
    assert one.lipschitz is not None
    assert grouped.lipschitz.constant > one.lipschitz.constant == 1.0
    assert grouped.epsilon >= one.epsilon


@pytest.mark.sampled(2)
@pytest.mark.parametrize("train", [by_fit, by_engine])
def test_cut_batches_are_trained_on_one_shape_and_recorded(train: Any) -> None:
    run = make_network_run(batches=CUT, noise_multiplier=1.0)
    sizes = [len(batch) for batch in draw_batches(make_network_run(), torch.Generator().manual_seed(3))]
    assert max(sizes) > 7
    recorded, whole = train(run)
    assert with_fresh_noise(recorded) == run
    split, parts = train(run, physical_size=7)
    assert with_fresh_noise(split) == run
    assert torch.allclose(flat(whole), flat(parts), atol=1e-10)
    assert "cut at 7 records" in lethe.certify(recorded, 0.999, allow_large_delta=True).explain()


SEEDS: dict[str, Callable[[], dict[str, Any]]] = {
    "seed": lambda: {"seed": 0},
    "noise": lambda: {"noise_generator": torch.Generator().manual_seed(0)},
    "unknown noise": lambda: {"noise_generator": torch.Generator()},  # nobody can tell how it was seeded
    "both": lambda: {"noise_generator": torch.Generator().manual_seed(0), "batch_generator": torch.Generator().manual_seed(1)},
}


def linear(run: Run, **randomness: Any) -> Run:
    generator = np.random.default_rng(0)
    features, targets = generator.normal(size=(run.records, 3)), generator.integers(3, size=run.records)
    return fit_linear(run, features, targets, classes=3, **randomness).run


def head(run: Run, **randomness: Any) -> Run:
    loss = {"kind": "softmax_regression", "feature_norm": 1.0, "intercept": True}
    run = run.replace(loss=loss, clip_norm=None)
    return fit_head(nn.Flatten(), nn.Linear(COLUMNS, CLASSES, dtype=torch.float64), make_data(), run, **randomness).run


TRAINERS: dict[str, tuple[Callable[..., Run], Callable[[str], Run]]] = {
    "fit_linear": (linear, lambda design: make_any_run(batches={"design": design, "size": 20}, passes=2, release="all")),
    "fit_head": (head, lambda design: make_network_run(design, noise_multiplier=3.0)),
    "fit": (lambda run, **given: fit_network(run, **given).run, lambda design: make_network_run(design, noise_multiplier=3.0)),
    "PrivacyEngine": (
        lambda run, **given: Loop(run, **{"batch_generator": None, "noise_generator": None, **given}).whole(),
        lambda design: make_network_run(design, noise_multiplier=3.0),
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("given", SEEDS)
def test_a_seed_or_a_generator_is_recorded_and_nothing_is_released(trainer: str, given: str) -> None:
    train, planned = TRAINERS[trainer]
    plan = planned("cyclic")
    recorded, fresh = train(plan, **SEEDS[given]()), train(plan)
    assert recorded.seeded
    assert not fresh.seeded
    assert with_fresh_noise(recorded) == fresh
    certificate = lethe.certify(recorded, 1e-5)
    assert certificate.epsilon == certificate.delta_at(1.0) * math.inf == math.inf
    assert f"with fresh noise: epsilon = {shown(lethe.certify(fresh, 1e-5).epsilon)}" in certificate.explain()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_known_batches_are_no_harm_where_they_are_no_secret(trainer: str) -> None:
    train, planned = TRAINERS[trainer]
    for design, seeded in (("cyclic", False), ("poisson", True), ("shuffled_once", True), ("balls_in_bins", True)):
        recorded = train(planned(design), batch_generator=torch.Generator().manual_seed(0))
        assert recorded.seeded == seeded, design


def test_three_starts_of_which_the_second_was_seeded_and_saved_nothing(tmp_path: Path) -> None:
    run, ended = make_kept_run("cyclic", release="all"), None
    for randomness, kill in (({}, 1), ({"seed": 4}, 1), ({}, 99)):
        spy = Spy()
        spy.kill(kill, before=False)
        ended = trained(tmp_path, run, spy, **{"batch_generator": None, "noise_generator": None, **randomness})
        assert (ended is None) == (kill == 1)
    assert ended is not None
    assert ended.run.seeded


@pytest.mark.sampled(2)
@pytest.mark.parametrize("train", [by_fit, by_engine])
@pytest.mark.parametrize("secure", [False, True])
def test_an_adaptive_norm_is_recorded_and_moves(train: Any, secure: bool) -> None:
    """As an option it follows the median; a run may say another quantile. What is recorded is the plan."""
    plan = make_network_run(noise_multiplier=1.0)
    said = plan.replace(clip_method="adaptive", clip_quantile=0.5)
    options: dict[str, Any] = {"secure": True, "seed": None} if secure else {}
    recorded, model = train(plan, method="adaptive", **options)
    assert with_fresh_noise(recorded) == said
    again, same = train(said, **options)
    assert with_fresh_noise(again) == said
    assert torch.equal(flat(model), flat(same)) is not secure
    assert with_fresh_noise(train(said.replace(clip_quantile=0.3))[0]).clip_quantile == 0.3


def test_without_noise_an_adaptive_norm_follows_the_gradients_alone() -> None:
    """Against plain clipping, step by step, at the norms that it says; and it goes on from a checkpoint."""
    run = make_network_run("cyclic", clip_method="adaptive", clip_quantile=0.9)
    model = make_network()
    fitted = fit_network(run, model, seed=3)
    assert fitted.clip_norms is not None
    assert len(set(fitted.clip_norms)) == len(fitted.clip_norms) == 9
    same = make_network()
    for step, norm in enumerate(fitted.clip_norms):
        place = slice(5 * (step % 4), 5 * (step % 4) + 5)
        one = make_network_run("full", records=5, steps=1, clip_norm=norm)
        fit_network(one, same, data=tuple(part[place] for part in make_data()), seed=3)
    torch.testing.assert_close(flat(model), flat(same), rtol=1e-6, atol=1e-8)


def test_an_adaptive_norm_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    run = make_kept_run("cyclic", clip_method="adaptive", clip_quantile=0.9)
    spy = Spy()
    spy.kill(8, before=True)
    assert trained(tmp_path, run, spy) is None
    kept = read_checkpoint(tmp_path / "checkpoint.pt")
    assert kept is not None
    norms = kept["also"]["lethe adaptive clip norm"]["norms"]
    fitted = trained(tmp_path, run)
    assert fitted is not None
    assert fitted.clip_norms is not None
    assert list(fitted.clip_norms[: len(norms)]) == norms
    assert len(norms) == 7
    assert as_planned(fitted.run) == run
