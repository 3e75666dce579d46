"""What processes must agree on before they train together, and what they cannot train."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from processes import Processes, all_raised, plain_fit
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train import Group, PrivacyEngine
from lethe.train.distributed.workers import Workers

pytestmark = pytest.mark.slow  # starting processes takes seconds


def other_model(rank: int) -> Tensor:
    model: Any = make_network()
    with torch.no_grad():
        model[3].bias[1] += 1e-15 * rank
    return plain_fit(rank, model=model)


def other_frozen(rank: int) -> Tensor:
    model = make_network()
    model[0].bias.requires_grad_(False)
    with torch.no_grad():
        model[0].bias += rank
    return plain_fit(rank, model=model)


def other_shape(rank: int) -> Tensor:
    return plain_fit(rank, model=nn.Sequential(nn.Linear(4, 5 + rank), nn.Linear(5 + rank, 3)).double())


def other_mode(rank: int) -> Tensor:
    return plain_fit(rank, model=make_network().train(rank == 0))


def other_run(rank: int) -> Tensor:
    return plain_fit(rank, run=make_network_run("shuffled", noise_multiplier=1.0 + rank))


def other_length(rank: int) -> Tensor:
    rows = 23 - rank
    return plain_fit(
        rank,
        data=tuple(part[:rows] for part in make_data()),
        run=make_network_run("shuffled", noise_multiplier=1.0, records=rows, batches={"design": "shuffled", "size": 5}),
    )


def other_contents(rank: int) -> Tensor:
    return plain_fit(rank, data=make_data(seed=rank))


def other_physical_size(rank: int) -> Tensor:
    return plain_fit(rank, physical_size=4 + rank)


def other_groups(rank: int) -> Tensor:
    groups = [Group(parameters=("0.*",), clip_norm=0.1), Group(parameters=("*",), clip_norm=0.2 + rank / 10)]
    return plain_fit(rank, clip_groups=groups)


def other_isolation(rank: int) -> Tensor:
    return plain_fit(rank, isolation="checked" if rank else "enforced")


def other_optimizer(rank: int) -> Tensor:
    model = make_network()
    return plain_fit(rank, model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.1 * (1 + rank)))


def other_secure(rank: int) -> Tensor:
    return plain_fit(rank, secure=rank == 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (other_model, "model: not the same"),
        (other_frozen, "model: not the same"),
        (other_shape, "model: not the same"),
        (other_mode, "model: not the same"),
        (other_run, "run: not the same"),
        (other_length, "run: not the same"),
        (other_contents, "contents of some records"),
        (other_physical_size, "physical_size: not the same in all processes: 4 in process 0, 5 in process 1"),
        (other_groups, "run: not the same"),
        (other_isolation, "isolation: not the same"),
        (other_optimizer, "optimizer: not the same"),
        (other_secure, "secure: not the same"),
    ],
)
def test_processes_that_begin_differently_are_all_told_so(processes: Processes, begin: Any, what: str) -> None:
    for message in all_raised(processes.run(2, begin), InputError):
        assert what in message


def other_group(rank: int, begun: bool) -> None:
    """An engine that was made, or given its model, in a process group that is gone when it is used."""
    engine = PrivacyEngine(make_network_run(noise_multiplier=1.0))
    model = make_network()
    own = torch.optim.SGD(model.parameters(), lr=0.5)
    if not begun:
        dist.destroy_process_group()
    losses = lambda batch: CROSS_ENTROPY(model(batch[0]), batch[1])  # noqa: E731
    _, _, loader = engine.make_private(module=model, optimizer=own, losses=losses, data=make_data())
    batch = next(iter(loader))
    dist.destroy_process_group()
    engine.backward(batch)


@pytest.mark.parametrize("begun", [False, True])
def test_an_engine_of_another_process_group_is_refused(processes: Processes, begun: bool) -> None:
    for rank, message in enumerate(all_raised(processes.run(2, other_group, begun), InputError)):
        assert f"the engine was made in process {rank} of 2" in message


def alone(rank: int) -> bool:
    return Workers.current() == Workers() and dist.is_initialized() and bool(plain_fit(rank).isfinite().all())


def test_a_process_group_of_one_is_one_process(processes: Processes) -> None:
    assert processes.run(1, alone) == [True]
