"""Generators: which streams are the same, and that every start under a seed has its own."""

from typing import Any

import numpy as np
import pytest
import torch
from networks import make_network_run

from lethe.train.core.generators import fresh_generator, same_stream, seeded_generators, state_digest
from lethe.train.distributed.placement import Placement
from lethe.train.distributed.workers import Workers
from lethe.train.network.noise.training_noise import sources_of
from lethe.train.options import TrainOptions

CPU = torch.device("cpu")


def test_every_start_under_a_seed_has_streams_of_its_own() -> None:
    drawn = [
        tuple(torch.rand(4, generator=generator).tolist())
        for seed in (0, 1, 2)
        for start in range(5)
        for generator in seeded_generators(seed, (CPU, CPU), start=start)
    ]
    assert len(set(drawn)) == len(drawn)
    first, second = (torch.rand(4, generator=generator) for generator in seeded_generators(7, (CPU, CPU)))
    again = [torch.rand(4, generator=generator) for generator in seeded_generators(7, (CPU, CPU), start=0)]
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])


def test_a_later_start_keeps_the_batches_and_changes_the_noise() -> None:
    model, drawn = torch.nn.Linear(5, 1, bias=False), []
    placement = Placement(model, dict(model.named_parameters()), Workers())
    for start in (0, 1, 2):
        batches, noise = sources_of(make_network_run(), TrainOptions(seed=3), placement, Workers(), start=start)
        tensor = torch.zeros(5)
        noise.add_to([tensor], 1.0)
        drawn.append((torch.rand(5, generator=batches), tensor))
    assert all(torch.equal(drawn[0][0], batches) for batches, _ in drawn)
    assert len({tuple(noise.tolist()) for _, noise in drawn}) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: torch.Generator().manual_seed(seed),
        np.random.default_rng,
        lambda seed: np.random.Generator(np.random.SFC64(seed)),
        lambda seed: np.random.Generator(np.random.MT19937(seed)),
        lambda seed: np.random.Generator(np.random.Philox(seed)),
    ],
)
def test_a_digest_tells_states_apart(make: Any) -> None:
    assert state_digest(make(1)) == state_digest(make(1))
    assert state_digest(make(1)) != state_digest(make(2))
    used = make(1)
    torch.rand(1, generator=used) if isinstance(used, torch.Generator) else used.random()
    assert state_digest(used) != state_digest(make(1))


def test_which_streams_are_the_same() -> None:
    one = torch.Generator().manual_seed(1)
    assert same_stream(one, one)
    assert same_stream(one, torch.Generator().manual_seed(1))
    assert not same_stream(one, torch.Generator().manual_seed(2))
    assert not same_stream(fresh_generator(CPU), fresh_generator(CPU))
    assert not same_stream(None, None)
    assert not same_stream(one, None)
    generator = np.random.default_rng(0)
    assert not same_stream(generator, generator)  # of batches it cannot be
