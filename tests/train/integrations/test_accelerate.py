"""accelerate beside the engine, in either order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from forked_processes import told, told_by
from torch import nn

import lethe
from lethe.errors import InputError
from lethe.train import Checkpoints, PrivacyEngine

accelerate = pytest.importorskip("accelerate")
COUNTS = {"records": 40, "batches": lethe.batches.Cyclic(8), "steps": 5, "release": "all", "neighbours": "replace_one"}
RUN = lethe.Run(**COUNTS, step_size=1.0, clip_norm=1.0, noise_multiplier=1.0)  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def precision_of_its_own() -> None:
    """Of this process, a Trainer with bf16 may have set another."""
    accelerate.state.AcceleratorState._reset_state()


def losses_of(model: nn.Module) -> Any:
    return lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def looped(order: str, *, folder: Any = None, users: Any = None) -> tuple[Any, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = nn.Linear(4, 3)
        data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.arange(40) % 3)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.1)
    run = RUN if users is None else RUN.replace(records=20, batches=lethe.batches.Cyclic(4), unit="user")
    kept = None if folder is None else Checkpoints(folder=folder)
    generators: dict[str, Any] = {} if folder else {"noise_generator": np.random.default_rng(0)}
    accelerator = accelerate.Accelerator(cpu=True)  # which initialises the process group
    if order == "before":
        model, optimizer = accelerator.prepare(model, optimizer)
    given = optimizer
    engine = PrivacyEngine(
        model, optimizer, losses_of(model), data, run, **arguments({"physical_size": 4, "checkpoints": kept, "users": users, **generators})
    )
    loader = engine.batches()
    assert optimizer is given
    if order == "after":
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
        if engine.stepped:
            scheduler.step()
    assert engine.recorded_run().total_steps == engine.steps == 5
    return model, optimizer


@pytest.mark.sampled(2)
@pytest.mark.parametrize("users", [None, np.arange(40) // 2])
def test_both_orders_train_as_without_it(users: Any) -> None:
    ends = [looped(order, users=users)[0].weight.detach() for order in ("without", "before", "after")]
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def trained(folder: Path, number: int, rank: int, processes: int, how: str) -> dict[str, Any]:
    """In one of the processes of forked_processes."""
    model, _ = looped(how)
    assert isinstance(model, nn.parallel.DistributedDataParallel) == (processes > 1)
    return {"model": (model.module if processes > 1 else model).weight.detach()}


@pytest.mark.nightly(by_day="test_both_orders_train_as_without_it")
def test_two_processes_of_accelerate_train_as_one(tmp_path: Path) -> None:
    assert told_by("test_accelerate", tmp_path, "without:1", "before:2", "after:2") == [[0], [0, 0], [0, 0]]
    for number, rank in ((1, 0), (1, 1), (2, 0), (2, 1)):
        torch.testing.assert_close(told(tmp_path, number, rank)["model"], told(tmp_path, 0)["model"], rtol=0, atol=1e-6)


def test_what_accelerate_does_to_a_loop_is_answered_by_name() -> None:
    """A prepared DataLoader draws by itself, and `accumulate` leaves steps out."""
    data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.arange(40) % 3)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
    with pytest.raises(InputError, match=r"as it was before accelerator\.prepare"):
        PrivacyEngine(model, optimizer, losses_of(model), loader, epsilon=3.0, delta=1e-3, epochs=1)
    engine = PrivacyEngine(model, optimizer, losses_of(model), data, RUN)
    batches = engine.batches()
    given = iter(batches)
    engine.backward(next(given))  # and no step, as within accumulate
    with pytest.raises(InputError, match=r"(?s)step 1 was not taken.*accelerator\.accumulate.*physical_size="):
        next(given)


def test_the_guard_holds_through_the_wrapper(tmp_path: Any) -> None:
    _, optimizer = looped("before", folder=tmp_path)
    with pytest.raises(InputError, match="are used up"):
        optimizer.step()
