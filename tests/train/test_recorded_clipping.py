"""What a training did to gradients and batches, and whether its noise can be made again, is in the run that it records."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_head, fit_linear
from helpers import make_run, with_fresh_noise
from interrupted import Spy, make_kept_run, trained
from networks import CLASSES, COLUMNS, Loop, fit_network, make_data, make_network, make_network_run
from torch import nn

import lethe
from lethe.calculus.upward_formatting import shown
from lethe.errors import HypothesisError
from lethe.run.run import Run
from lethe.train.clip.groups import Group
from lethe.train.clip.rules.registry import per_layer
from lethe.train.core.samplers import draw_batches

GROUPS = (Group(parameters=("0.*",), clip_norm=0.24), Group(parameters=("*",), clip_norm=0.32))
NORMS = (0.24, 0.32)
CUT = {"design": "poisson", "size": 5, "truncate_at": 7}


def by_fit(run: Run, **options: Any) -> tuple[Run, nn.Module]:
    model = make_network()
    return fit_network(run, model, **{"seed": 3, **options}).run, model


def by_engine(run: Run, **options: Any) -> tuple[Run, nn.Module]:
    loop = Loop(run, seed=3, **options)
    recorded = loop.whole()
    loop.engine.close()
    return recorded, loop.model


@pytest.mark.sampled(24)
@pytest.mark.parametrize("train", [by_fit, by_engine])
@pytest.mark.parametrize("method", [None, "clip", "normalise", "automatic"])
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_arguments_are_recorded_and_a_run_that_says_them_is_trained_alike(train: Any, method: str | None, groups: Any) -> None:
    plan = make_network_run(noise_multiplier=1.0)
    recorded, model = train(plan, method=method, clip_groups=groups)
    said = plan.replace(clip_method=method or "clip", clip_groups=None if groups is None else NORMS)
    assert with_fresh_noise(recorded) == said
    again, same = train(said, clip_groups=groups)
    assert with_fresh_noise(again) == said
    for one, other in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(one, other)
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
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-10)
    assert "cut at 7 records" in lethe.certify(recorded, 0.999, allow_large_delta=True).explain()


def test_fit_and_the_engine_record_the_norms_of_the_layers() -> None:
    run = make_network_run(noise_multiplier=1.0)
    model = make_network()
    norms = tuple(group.clip_norm for group in per_layer(model, run.clip_norm or 0.0))
    fitted = fit_network(run, model, clip_groups="per_layer", seed=3)
    assert fitted.run.clip_groups == norms
    assert len(norms) > 1
    certificate = lethe.certify(with_fresh_noise(fitted.run), 0.999, allow_large_delta=True)
    assert f"clipped, in {len(norms)} groups of parameters" in certificate.explain()
    again = make_network()
    fit_network(run.replace(clip_groups=norms), again, clip_groups="per_layer", seed=3)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
    own, _ = by_engine(run, clip_groups="per_layer")
    assert own.clip_groups == norms


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


def network(run: Run, **randomness: Any) -> Run:
    return fit_network(run, **randomness).run


def loop(run: Run, **randomness: Any) -> Run:
    one = Loop(run, **{"batch_generator": None, "noise_generator": None, **randomness})
    return one.whole()


TRAINERS: dict[str, tuple[Callable[..., Run], Callable[[str], Run]]] = {
    "fit_linear": (linear, lambda design: make_run(batches={"design": design, "size": 20}, passes=2, release="all")),
    "fit_head": (head, lambda design: make_network_run(design, noise_multiplier=3.0)),
    "fit": (network, lambda design: make_network_run(design, noise_multiplier=3.0)),
    "PrivacyEngine": (loop, lambda design: make_network_run(design, noise_multiplier=3.0)),
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


def kept(folder: Path, run: Run, randomness: dict[str, Any], *, kill: int = 0) -> Run | None:
    """A training in a folder, killed after so many steps (0: never); what it recorded."""
    spy = Spy()
    if kill:
        spy.kill(kill, before=False)
    options: Any = {"batch_generator": None, "noise_generator": None, **randomness}
    ended = trained(folder, run, spy, **options)
    return None if ended is None else ended.run


def test_three_starts_of_which_the_second_was_seeded_and_saved_nothing(tmp_path: Path) -> None:
    run = make_kept_run("cyclic", release="all")
    for randomness in ({}, {"seed": 4}):
        assert kept(tmp_path, run, randomness, kill=1) is None
    ended = kept(tmp_path, run, {})
    assert ended is not None
    assert ended.seeded
