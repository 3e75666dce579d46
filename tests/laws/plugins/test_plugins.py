"""A theorem, a loss, a schedule, a layer rule and a mechanism can stand in a package of their own, without a change to Lethe."""

import importlib
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from forked import forking
from torch import nn

import lethe
from lethe.mechanisms.base import joint
from lethe.theorems.registry import OURS
from lethe.train import fit
from lethe.train.clip.clipper import Clipper

ROWS = np.random.default_rng(0).standard_normal((200, 3))
TARGETS = ROWS @ [1.0, -1.0, 0.5]


def run_of(**changes: Any) -> lethe.Run:
    """Full batches, a loss of which nothing is known, clipped to 1, and all released."""
    fields = {"records": 200, "batches": lethe.batches.Full(), "passes": 4, "step_size": 1.0, "clip_norm": 1.0, "noise_multiplier": 8.0}
    return lethe.Run(**{**fields, "loss": lethe.losses.Unknown(), "release": "all", "neighbours": "replace_one", **changes})


def a_theorem_is_tried_beside_the_others(acme: Any) -> None:
    run = run_of()
    alone = lethe.certify(run, 1e-5, theorems=[acme.EveryStep()])
    assert alone.theorem == acme.EveryStep.name
    exact = lethe.guarantees.GDP(2.0 * np.sqrt(4.0) / 8.0).epsilon(1e-5)
    assert exact <= alone.epsilon <= 1.25 * exact
    beside = lethe.certify(run, 1e-5, theorems=[*OURS, acme.EveryStep()])
    assert beside.epsilon <= alone.epsilon
    assert acme.EveryStep.name in beside.explain(every=True)
    cyclic = run.model_copy(update={"batches": lethe.batches.Cyclic(10)})
    with pytest.raises(lethe.HypothesisError, match="full batches"):
        lethe.certify(cyclic, 1e-5, theorems=[acme.EveryStep()])


def a_loss_and_a_schedule_are_certified_trained_and_read_back(acme: Any) -> None:
    changes = {"batches": lethe.batches.Cyclic(50), "passes": 3, "clip_norm": None, "noise_multiplier": 0.01, "release": "last"}
    run = run_of(step_size=acme.Cosine(first=0.5, period=12), loss=acme.PseudoHuber(feature_norm=3.0), **changes)
    run.save("run.json")
    again = lethe.Run.load("run.json")
    assert again == run
    assert lethe.certify(run, 1e-4).epsilon == lethe.certify(again, 1e-4).epsilon
    trained = fit_linear(run, ROWS, TARGETS, seed=1)
    assert lethe.certify(run.model_copy(update={"noise_multiplier": 20.0}), 1e-4).epsilon < np.inf
    assert type(trained.run.loss) is acme.PseudoHuber


def a_layer_rule_clips(acme: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), acme.Scale(4), nn.Linear(4, 2))
    run = run_of(batches=lethe.batches.Poisson(20), passes=1, step_size=0.1, noise_multiplier=1.0)
    labels = (TARGETS > 0).astype(np.int64)
    fitted = fit(model, nn.CrossEntropyLoss(reduction="none"), (ROWS.astype(np.float32), labels), run)
    assert lethe.certify(fitted.run, 1e-4).epsilon < np.inf


def a_layer_rule_is_exact(acme: Any) -> None:
    layer = acme.Scale(2)
    inputs = torch.tensor([[1.0, 3.0], [torch.nan, torch.inf]])
    clipper = Clipper(layer, lambda batch: layer(batch).sum(1), 100.0)
    clipper.add(inputs)
    assert clipper.ways == {"fast"}
    assert torch.allclose(clipper.take()[layer.weight], torch.tensor([1.0, 3.0], dtype=torch.float64), rtol=1e-6)


def a_mechanism_composes(acme: Any) -> None:
    count, statement = acme.noisy_count(TARGETS > 0, lethe.guarantees.GDP(0.5))
    assert abs(count - np.count_nonzero(TARGETS > 0)) < 20.0
    both = joint([statement, acme.noisy_count(TARGETS < 0, lethe.guarantees.GDP(0.5))[1]])
    assert both.epsilon(1e-5) == pytest.approx(lethe.guarantees.GDP(np.sqrt(0.5)).epsilon(1e-5), rel=1e-9)
    assert acme.noisy_count(TARGETS > 0, lethe.guarantees.GDP(0.5), np.random.default_rng(0))[1].epsilon(1e-5) == np.inf


CHECKS = (
    a_theorem_is_tried_beside_the_others,
    a_loss_and_a_schedule_are_certified_trained_and_read_back,
    a_layer_rule_clips,
    a_layer_rule_is_exact,
    a_mechanism_composes,
)


def use_acme(folder: str) -> None:
    """In a process of its own, whose registries nobody else sees."""
    os.chdir(folder)
    warnings.simplefilter("error")
    acme = importlib.import_module("acme")
    acme.register()
    for check in CHECKS:
        check(acme)


def test_a_package_from_outside_adds_its_parts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    process = forking().Process(target=use_acme, args=(str(tmp_path),), daemon=True)
    process.start()
    process.join(300)
    assert process.exitcode == 0, capfd.readouterr().err
