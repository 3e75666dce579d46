"""Training under a seed, or with a generator that was given, says so in the recorded run, and its certificate is no release."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_head, fit_linear
from helpers import make_run, with_fresh_noise
from interrupted import Spy, make_kept_run, trained
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, make_data, make_network, make_network_run
from private_loops import Loop
from torch import nn

import lethe
from lethe.calculus.upward_formatting import shown
from lethe.run.run import Run
from lethe.train import fit

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
    return fit(make_network(), CROSS_ENTROPY, make_data(), run, **arguments(randomness)).run


def loop(run: Run, **randomness: Any) -> Run:
    one = Loop(run, **{"batch_generator": None, "noise_generator": None, **randomness})
    return one.whole()


TRAINERS: dict[str, tuple[Callable[..., Run], Callable[[str], Run]]] = {
    "fit_linear": (linear, lambda design: make_run(batches={"design": design, "size": 20}, passes=2, release="all")),
    "fit_head": (head, lambda design: make_network_run(design, noise_multiplier=3.0)),
    "fit": (network, lambda design: make_network_run(design, noise_multiplier=3.0)),
    "PrivacyEngine": (loop, lambda design: make_network_run(design, noise_multiplier=3.0)),
}


@pytest.mark.slow
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
@pytest.mark.slow
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


@pytest.mark.slow
def test_three_starts_of_which_the_second_was_seeded_and_saved_nothing(tmp_path: Path) -> None:
    run = make_kept_run("cyclic", release="all")
    for randomness in ({}, {"seed": 4}):
        assert kept(tmp_path, run, randomness, kill=1) is None
    ended = kept(tmp_path, run, {})
    assert ended is not None
    assert ended.seeded
