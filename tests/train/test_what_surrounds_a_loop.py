"""What people put around a private training, and what they leave in their loops: modes that watch, sparse tables, flat losses, lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, flat, make_data, make_network, make_network_run, one_thread
from private_loops import Loop, losses_of
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from lethe.errors import InputError
from lethe.train import PrivacyEngine, fit
from lethe.train.data.loaders import as_source

RUN = make_network_run(noise_multiplier=1.0)
FEATURES, LABELS = make_data()
TOKENS = torch.randint(1, 7, (len(LABELS), 2), generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


class Watching(TorchDispatchMode):
    """Counts operations, as profilers and debuggers do."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
def test_a_mode_that_watches_operations_changes_nothing() -> None:
    plain, watched = Loop(), Loop()
    plain.whole()
    with Watching() as watching, FlopCounterMode(display=False) as counting:
        watched.whole()
    assert watching.count
    assert counting.get_total_flops()
    assert torch.equal(flat(plain.model), flat(watched.model))


@pytest.mark.parametrize("physical_size", [None, 1, 4])
def test_sparse_embeddings_are_trained_to_the_numbers_of_dense_ones(physical_size: int | None) -> None:
    """Noise reaches every row, so that the noisy gradients are dense."""
    for kind, options in ((nn.Embedding, {"padding_idx": 0}), (nn.EmbeddingBag, {})):
        moved = []
        for sparse in (True, False):
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = nn.Sequential(kind(7, 4, sparse=sparse, **options), nn.Flatten(), nn.LazyLinear(CLASSES)).double()
                model(TOKENS)
            moved.append(flat(fit(model, CROSS_ENTROPY, (TOKENS, LABELS), RUN, seed=0, physical_size=physical_size).model))
        assert torch.equal(*moved)


@pytest.mark.parametrize("reduced", [Tensor.mean, lambda losses: losses.repeat(2)])
def test_losses_that_are_not_one_a_record_are_refused_in_words(reduced: Callable[[Tensor], Tensor]) -> None:
    model = make_network()
    loop = Loop(make_network_run("cyclic", noise_multiplier=1.0), model=model, losses=lambda batch: reduced(losses_of(model)(batch)))
    with pytest.raises(InputError, match=r"(?s)losses: got shape.*one loss a record.*losses\.reshape\(records, -1\)\.mean\(1\)"):
        loop.use(next(iter(loop.loader)))


@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
def test_a_penalty_on_the_weights_counts_in_each_record_and_stays_within_the_bound() -> None:
    model = nn.Linear(COLUMNS, CLASSES).double()

    def penalised(batch: Any) -> Tensor:
        return losses_of(model)(batch) + 100.0 * model.weight.square().sum()

    loop = Loop(make_network_run("full", steps=1), model=model, losses=penalised)
    loop.engine.backward(next(iter(loop.loader)))
    assert float(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()) <= 0.4


class Several(torch.optim.Optimizer):
    """One optimiser of two, as docs/train.md has it."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for part in self.parts:
            part.step()


def test_several_optimisers_are_made_one() -> None:
    model = make_network()
    parts = [torch.optim.SGD([model[0].weight], lr=0.5), torch.optim.AdamW([*model.parameters()][1:], lr=0.1)]
    for train in (
        lambda: fit(model, CROSS_ENTROPY, make_data(), RUN, optimizer=parts),  # pyright: ignore[reportArgumentType]
        lambda: PrivacyEngine(RUN).make_private(module=model, optimizer=parts, losses=losses_of(model), data=make_data()),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(InputError, match=r"(?s)got list.*whose step\(\) calls step\(\) of each, with release: all"):
            train()
    before = flat(model)
    fit(model, CROSS_ENTROPY, make_data(), RUN, optimizer=Several(*parts))
    assert ((flat(model) - before).abs() > 1e-6).all()


class NoLength:
    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return FEATURES[place], int(LABELS[place])


def test_a_loader_of_data_without_a_length_is_refused_by_name() -> None:
    loader: DataLoader[Any] = DataLoader(NoLength(), batch_size=4)  # pyright: ignore[reportArgumentType]
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    given: dict[str, Any] = {"data_loader": loader, "noise_multiplier": 1.0, "max_grad_norm": 1.0, "epochs": 1}
    for read in (
        lambda: as_source(loader),
        lambda: PrivacyEngine().make_private(module=model, optimizer=optimizer, losses=losses_of(model), **given),
    ):
        with pytest.raises(InputError, match="NoLength has no length"):
            read()


class Graph:
    """What a library of graphs collates to: no tensor."""


def test_collated_graphs_are_told_of_padding_and_of_one_at_a_time() -> None:
    for collate, got in ((lambda records: Graph(), "is Graph"), (lambda records: torch.zeros(3 * len(records), 2), r"has shape \(3, 2\)")):
        loader: DataLoader[Any] = DataLoader([*FEATURES], batch_size=4, collate_fn=collate)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputError, match=rf"(?s){got}.*padded to one size, with a mask.*one at a time: physical_size=1"):
            as_source(loader)
