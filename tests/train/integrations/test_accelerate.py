"""accelerate beside the engine, in either order."""

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from forked import forking
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


def trained(order: str, *, folder: Any = None, users: Any = None) -> tuple[Any, Any]:
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
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("users", [None, np.arange(40) // 2])
def test_both_orders_train_as_without_it(users: Any) -> None:
    ends = [trained(order, users=users)[0].weight.detach() for order in ("without", "before", "after")]
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def together(folder: Path, rank: int, port: int) -> None:
    """One of two processes, as a launcher starts it."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    for order in ("before", "after"):
        model, _ = trained(order)
        assert isinstance(model, nn.parallel.DistributedDataParallel)
        torch.save(model.module.weight.detach(), folder / f"{order}-{rank}.pt")


@pytest.mark.nightly(by_day="test_both_orders_train_as_without_it")
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
def test_two_processes_of_accelerate_train_as_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [forking().Process(target=together, args=(tmp_path, rank, port)) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0
    alone = trained("without")[0].weight.detach()
    for found in tmp_path.iterdir():
        assert torch.allclose(torch.load(found), alone, rtol=0, atol=1e-6)
    assert len(list(tmp_path.iterdir())) == 4


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


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
def test_the_guard_holds_through_the_wrapper(tmp_path: Any) -> None:
    _, optimizer = trained("before", folder=tmp_path)
    with pytest.raises(InputError, match="are used up"):
        optimizer.step()
