"""One door to training: each kind of model goes through `fit`, comes out as a `Fitted`, and refuses what it does not understand by name."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_head, fit_linear
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from problems import make_loss, make_problem, make_run
from torch import nn

import lethe
from lethe.calculus.filters import Odometer
from lethe.certificates.training_record import TrainingRecord
from lethe.errors import InputError
from lethe.run.losses import Softmax, parse_loss
from lethe.run.run import Run
from lethe.train import Checkpoints, Fitted, Group, Head, Linear, PrivacyEngine, ProximalGroup, TrainOptions, fit
from lethe.train.linear.models import LinearPredictor

KIND = "softmax_regression"
PROBLEM = make_problem(KIND)
TABLE = PROBLEM.features, PROBLEM.targets
LOSS = parse_loss(make_loss(KIND, evidence="declared"))


def make_head() -> Head:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Head(nn.Identity(), nn.Linear(4, 3, bias=False).double())


def through(model: Any, run: Run | None = None, loss: Any = None, **options: Any) -> Fitted[Any]:
    """A training of each kind by the door itself."""
    if isinstance(model, nn.Module):
        run = make_network_run(noise_multiplier=1.0) if run is None else run
        return fit(model, CROSS_ENTROPY if loss is None else loss, make_data(), run, **arguments(options))
    data = TABLE if isinstance(model, Linear) else tuple(torch.tensor(part) for part in TABLE)
    return fit(model, loss, data, make_run(release="all") if run is None else run, **arguments(options))


def test_the_shorthands_are_the_door() -> None:
    run = make_run()
    short, long = fit_linear(run, *TABLE, classes=3, seed=1), fit(Linear(classes=3), run.loss, TABLE, run, options=TrainOptions(seed=1))
    assert (short.model.weights == long.model.weights).all()
    heads = fit_head(*vars_of(make_head()), tuple(torch.tensor(part) for part in TABLE), run, seed=1), through(make_head(), run, seed=1)
    assert torch.equal(*(head.model.state_dict()["2.weight"] for head in heads))


def vars_of(head: Head) -> tuple[nn.Module, nn.Linear]:
    return head.backbone, head.head


@pytest.mark.slow
def test_all_come_out_alike() -> None:
    """The same fields, of which a budget fills the same ones, whatever was trained."""
    budget: dict[str, Any] = {
        "noise_budget": 1.0,
        "release": "all",
        "neighbours": "replace_one",
        "batches": {"design": "cyclic", "size": 5},
    }
    found = {
        "module": through(make_network(), make_network_run(noise_multiplier=2.0, **{**budget, "neighbours": "replace_one"})),
        "linear": through(Linear(classes=3), make_run(**budget)),
        "head": through(make_head(), make_run(**budget)),
    }
    for fitted in found.values():
        assert isinstance(fitted, Fitted)
        assert fitted.diagnostics.steps > 0
        assert fitted.diagnostics.records == 23
        assert fitted.diagnostics.left_over == 3
        assert fitted.odometer == Odometer.up_to(1.0)
        assert fitted.spent is not None
        assert 0.5 < fitted.spent <= 1.0 + 1e-9
        assert fitted.checked
        assert isinstance(fitted.declared, tuple)
        assert not fitted.run.seeded
        assert isinstance(fitted.record, TrainingRecord)
        assert fitted.record.run == fitted.run
        assert lethe.certify(fitted, 1e-5).epsilon < np.inf
    assert isinstance(found["module"].model, nn.Sequential)
    assert isinstance(found["linear"].model, LinearPredictor)
    assert (found["linear"].model.classes, found["linear"].model.loss.kind) == (3, KIND)
    assert found["head"].model(torch.tensor(TABLE[0])).shape == (23, 3)


# Of networks alone: something that is not the default for each of their options.
OTHERS: dict[str, Any] = {
    "lr_scheduler": "cosine",
    "validation_data": [1],
    "patience": 2,
    "clip_groups": [Group(parameters=("*",), clip_norm=0.1)],
    "proximal_groups": [ProximalGroup(regularisers=())],
    "method": "clip",
    "users": [1, 2],
    "records_per_user": 2,
    "views": 2,
    "ema": 0.9,
    "physical_size": 4,
    "gradient_memory": 0,
    "secure": True,
    "isolation": "declared",
    "checkpoints": Checkpoints(folder="nowhere"),
}


@pytest.mark.parametrize("option", OTHERS)
def test_options_of_networks_are_refused_by_name_elsewhere(option: str) -> None:
    of_all = {"noise_policy", "seed", "batch_generator", "noise_generator", "progress", "ledger", "allow_large_delta"}
    assert set(OTHERS) == {field.name for field in fields(TrainOptions)} - of_all  # of a new one this test must know
    with pytest.raises(InputError, match=f"^{option}: a Linear does not know it"):
        through(Linear(classes=3), **{option: OTHERS[option]})
    if option == "physical_size":
        through(make_head(), physical_size=4)
        return
    head = make_head()
    before = head.head.weight.detach().clone()
    with pytest.raises(InputError, match=f"^{option}: a Head does not know it"):
        through(head, **{option: OTHERS[option]})
    assert torch.equal(before, head.head.weight)


@pytest.mark.parametrize("other", [CROSS_ENTROPY, "softmax", Softmax(feature_norm=1.5), Softmax(feature_norm=1.4, evidence="enforced"), 3])
def test_another_loss_than_the_run_s_is_refused(other: Any) -> None:
    for model in (Linear(classes=3), make_head()):
        with pytest.raises(InputError, match=r"^loss: got"):
            through(model, loss=other)
    through(Linear(classes=3), loss=make_run().loss)
    with pytest.raises(InputError, match="loss: got"):
        through(make_network(), loss=make_run().loss)


@pytest.mark.parametrize("data", [TABLE[0], TABLE[:1], (*TABLE, TABLE[1]), None, {"features": TABLE[0], "targets": TABLE[1]}])
def test_a_linear_model_needs_a_table_and_targets(data: Any) -> None:
    with pytest.raises(InputError, match=r"needs the pair \(features, targets\)"):
        fit(Linear(classes=3), None, data, make_run())


def test_what_is_no_model_no_optimiser_and_no_run_is_refused() -> None:
    run = make_network_run(noise_multiplier=1.0)
    with pytest.raises(InputError, match="model: got str"):
        fit("cnn", CROSS_ENTROPY, make_data(), run)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"optimizer: got NoneType; it needs a torch\.optim\.Optimizer"):
        PrivacyEngine(make_network(), None, len, make_data(), run)  # pyright: ignore[reportArgumentType]
    for model, loss in ((Linear(classes=3), None), (Linear(classes=3), LOSS), (make_head(), None), (make_head(), LOSS)):
        with pytest.raises(InputError, match=r"needs a lethe\.Run"):
            through(model, "run", loss)  # pyright: ignore[reportArgumentType]
