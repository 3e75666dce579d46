"""What people write into losses by which records meet: refused before the first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from torch import Tensor

from lethe.errors import InputError
from lethe.train import TrainOptions, fit

RUN = make_network_run("cyclic", noise_multiplier=1.0)


def over_class_frequencies(outputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(outputs, targets) / torch.bincount(targets, minlength=3)[targets]


def smoothed_by_class_frequencies(outputs: Tensor, targets: Tensor) -> Tensor:
    share = torch.bincount(targets, minlength=3).double() / len(targets)
    return 0.9 * CROSS_ENTROPY(outputs, targets) - 0.1 * (outputs.log_softmax(1) * share).sum(1)


def weighed_by_rank(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = CROSS_ENTROPY(outputs, targets)
    return losses * (1 + losses.detach().argsort().argsort() / len(losses))


def weighed_in_numpy(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = CROSS_ENTROPY(outputs, targets)
    weights = losses.detach().numpy()
    return losses * torch.from_numpy(weights / weights.max())


def hardest(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = CROSS_ENTROPY(outputs, targets)
    return losses * (losses >= losses.detach().topk(2).values[-1])


def broadcast(outputs: Tensor, targets: Tensor) -> Tensor:
    """(B,) against (B, 1) gives (B, B)."""
    return (outputs[:, 0] - targets[:, None].double()).square().mean(0)


def contrasted_with_the_next(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - outputs.roll(1, 0)).square().sum(1)


def mixed_up(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * CROSS_ENTROPY(outputs, targets) + 0.5 * CROSS_ENTROPY(outputs, targets[torch.randperm(len(targets))])


def shuffled_with_a_fixed_seed(outputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(outputs, targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(1))])


def scaled_down_where_one_is_large(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = CROSS_ENTROPY(outputs, targets)
    return losses * (8.0 if float(losses.detach().mean()) < 1.1 else 4.0)


def sorted_by_size(outputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(outputs, targets).sort().values


def the_mean_for_all(outputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(outputs, targets).mean().expand(len(targets))


def several_tasks(outputs: Tensor, targets: Tensor) -> Any:
    return {"class": CROSS_ENTROPY(outputs, targets), "size": outputs.square().sum(1)}


LOSSES: list[Callable[[Tensor, Tensor], Any]] = [
    over_class_frequencies,
    smoothed_by_class_frequencies,
    weighed_by_rank,
    weighed_in_numpy,
    hardest,
    broadcast,
    contrasted_with_the_next,
    mixed_up,
    shuffled_with_a_fixed_seed,
    scaled_down_where_one_is_large,
    sorted_by_size,
    the_mean_for_all,
    several_tasks,
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda function: function.__name__)
def test_it_is_refused_before_the_first_step(loss: Callable[[Tensor, Tensor], Any]) -> None:
    torch.manual_seed(0)  # a permutation that moves no target mixes nothing
    done: list[int] = []
    with pytest.raises(InputError, match=r"the loss of record|got dict|a record alone"):
        fit(make_network(), loss, make_data(), RUN, options=TrainOptions(progress=lambda step, steps: done.append(step)))
    assert len(done) <= 1  # the few records that are compared may lie where they belong
