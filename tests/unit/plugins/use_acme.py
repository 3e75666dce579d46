"""What a user does with the package acme; an assertion fails where Lethe does not take one of its parts."""

import acme
import numpy as np
import pytest
import torch
from doors import fit_linear
from torch import nn

import lethe
from lethe.mechanisms.base import joint
from lethe.theorems.registry import OURS
from lethe.train import fit
from lethe.train.clip.clipper import Clipper

rng = np.random.default_rng(0)
rows = rng.standard_normal((200, 3))
targets = rows @ [1.0, -1.0, 0.5]


def a_theorem_is_tried_beside_the_others() -> None:
    run = lethe.Run(
        records=100,
        batches=lethe.batches.Full(),
        passes=4,
        step_size=1.0,
        clip_norm=1.0,
        noise_multiplier=8.0,
        loss=lethe.losses.Unknown(),
        release="all",
        neighbours="replace_one",
    )
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


def a_loss_and_a_schedule_are_certified_trained_and_read_back() -> None:
    run = lethe.Run(
        records=200,
        batches=lethe.batches.Cyclic(50),
        passes=3,
        step_size=acme.Cosine(first=0.5, period=12),
        noise_multiplier=0.01,
        loss=acme.PseudoHuber(feature_norm=3.0),
        release="last",
        neighbours="replace_one",
    )
    run.save("run.json")
    again = lethe.Run.load("run.json")
    assert again == run
    assert lethe.certify(run, 1e-4).epsilon == lethe.certify(again, 1e-4).epsilon
    trained = fit_linear(run, rows, targets, seed=1)
    assert lethe.certify(run.model_copy(update={"noise_multiplier": 20.0}), 1e-4).epsilon < np.inf
    assert type(trained.run.loss) is acme.PseudoHuber


def a_layer_rule_clips() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), acme.Scale(4), nn.Linear(4, 2))
    run = lethe.Run(
        records=200,
        batches=lethe.batches.Poisson(20),
        passes=1,
        step_size=0.1,
        clip_norm=1.0,
        noise_multiplier=1.0,
        release="all",
        neighbours="replace_one",
    )
    labels = (targets > 0).astype(np.int64)
    fitted = fit(model, nn.CrossEntropyLoss(reduction="none"), (rows.astype(np.float32), labels), run)
    assert lethe.certify(fitted.run, 1e-4).epsilon < np.inf


def a_layer_rule_is_exact() -> None:
    layer = acme.Scale(2)
    inputs = torch.tensor([[1.0, 3.0], [torch.nan, torch.inf]])
    clipper = Clipper(layer, lambda batch: layer(batch).sum(1), 100.0)
    clipper.add(inputs)
    assert clipper.ways == {"fast"}
    assert torch.allclose(clipper.take()[layer.weight], torch.tensor([1.0, 3.0], dtype=torch.float64), rtol=1e-6)


def a_mechanism_composes() -> None:
    count, statement = acme.noisy_count(targets > 0, lethe.guarantees.GDP(0.5))
    assert abs(count - np.count_nonzero(targets > 0)) < 20.0
    both = joint([statement, acme.noisy_count(targets < 0, lethe.guarantees.GDP(0.5))[1]])
    assert both.epsilon(1e-5) == pytest.approx(lethe.guarantees.GDP(np.sqrt(0.5)).epsilon(1e-5), rel=1e-9)
    assert acme.noisy_count(targets > 0, lethe.guarantees.GDP(0.5), np.random.default_rng(0))[1].epsilon(1e-5) == np.inf


acme.register()
a_theorem_is_tried_beside_the_others()
a_loss_and_a_schedule_are_certified_trained_and_read_back()
a_layer_rule_clips()
a_layer_rule_is_exact()
a_mechanism_composes()
print("all four are taken")
