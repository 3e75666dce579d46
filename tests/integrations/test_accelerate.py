"""accelerate beside the engine, in either order."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lethe
from lethe.errors import InputError
from lethe.train import Checkpoints, PrivacyEngine

accelerate = pytest.importorskip("accelerate")
CROSS_ENTROPY = nn.CrossEntropyLoss(reduction="none")


def trained(order: str, *, folder: Any = None, users: Any = None) -> tuple[Any, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = nn.Linear(4, 3)
        data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.arange(40) % 3)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.1)
    run = lethe.Run(records=40, batches=lethe.Cyclic(size=8), steps=5, step_size=1.0, clip_norm=1.0, noise_multiplier=1.0, release="all")
    if users is not None:
        run = run.replace(records=20, batches=lethe.Cyclic(size=4), unit="user")
    kept = None if folder is None else Checkpoints(folder=folder)
    generators: dict[str, Any] = {} if folder else {"noise_generator": np.random.default_rng(0)}
    engine = PrivacyEngine(run, physical_size=4, checkpoints=kept, **generators)
    accelerator = accelerate.Accelerator(cpu=True)
    if order == "before":
        model, optimizer = accelerator.prepare(model, optimizer)
    given = optimizer
    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data=data, users=users)
    assert optimizer is given
    if order == "after":
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for inputs, targets in loader:
        with engine.recording():
            losses = engine.losses(CROSS_ENTROPY, model(inputs), targets)
        engine.backward(losses)
        optimizer.step()
        optimizer.zero_grad()
        if engine.stepped:
            scheduler.step()
    assert engine.recorded_run().total_steps == engine.steps == 5
    return model, optimizer


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("users", [None, np.arange(40) // 2])
def test_both_orders_train_as_without_it(users: Any) -> None:
    ends = [trained(order, users=users)[0].weight.detach() for order in ("without", "before", "after")]
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
def test_the_guard_holds_through_the_wrapper(tmp_path: Any) -> None:
    _, optimizer = trained("before", folder=tmp_path)
    with pytest.raises(InputError, match="are used up"):
        optimizer.step()
