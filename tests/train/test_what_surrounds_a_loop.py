"""What people put around a private training, and what they leave in their loops: modes that watch, sparse tables, flat losses, lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, flat, make_data, make_network, make_network_run, one_thread
from private_loops import Loop
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from lethe.errors import InputError, LetheError
from lethe.train import PrivacyEngine, fit
from lethe.train.data import as_source

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


class Scaling(nn.Module):
    """Multiplies by numbers that are no tensors, and by one that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.size = nn.Linear(COLUMNS, CLASSES), nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs * 2.0 / 3.0) * self.size + inputs.mean(1, keepdim=True) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Watching, lambda: FlopCounterMode(display=False)])
def test_a_mode_that_watches_operations_changes_nothing(mode: Callable[[], Any]) -> None:
    moved = []
    for watched in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            loop = Loop(model=Scaling().double())
        for inputs, targets in loop.loader:
            if watched:
                with mode() as watching:
                    loop.use(inputs, targets)
                assert watching.count if isinstance(watching, Watching) else watching.get_total_flops()
            else:
                loop.use(inputs, targets)
        moved.append(flat(loop.model))
    assert torch.equal(*moved)


def table(sparse: bool) -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 4, padding_idx=0, sparse=sparse), nn.Flatten(), nn.Linear(8, CLASSES))


def bags(sparse: bool) -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(7, 4, sparse=sparse), nn.Linear(4, CLASSES))


@pytest.mark.parametrize("options", [{}, {"physical_size": 1}, {"physical_size": 4}])
@pytest.mark.parametrize("make", [table, bags])
def test_sparse_embeddings_are_trained_to_the_numbers_of_dense_ones(make: Callable[[bool], nn.Module], options: dict[str, Any]) -> None:
    """Noise reaches every row, so that the noisy gradients are dense."""
    moved = []
    for sparse in (True, False):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = make(sparse).double()
        moved.append(flat(fit(model, CROSS_ENTROPY, (TOKENS, LABELS), RUN, seed=0, **options).model))
    assert torch.equal(*moved)


def of_tokens(loop: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(loop.model(inputs).flatten(0, 1), targets[:, None].expand(-1, 2).flatten())


def of_pairs(loop: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    real, fake = loop.model(torch.cat([inputs, torch.zeros_like(inputs)])).chunk(2)
    return (real - fake).sum(1)


def penalised(loop: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(loop.model(inputs), targets) + 0.01 * sum(weight.square().sum() for weight in loop.model.parameters())


def unrecorded(loop: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    return CROSS_ENTROPY(loop.model(inputs), targets)


WORDS: list[tuple[Any, nn.Module, str]] = [
    (
        of_tokens,
        nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, CLASSES)),
        r"for \d+ records.*losses\.reshape\(records, -1\)\.mean\(1\)",
    ),
    (
        of_pairs,
        nn.Linear(COLUMNS, CLASSES),
        r"side by side in one record, in a tensor of shape \(B, 2, .*torch\.cat\(\[real, fake\]\)",
    ),
    (penalised, nn.Linear(COLUMNS, CLASSES), r"a penalty on the weights belongs into the optimiser \(weight_decay\)"),
]


@pytest.mark.parametrize(("losses", "model", "words"), WORDS)
def test_what_a_loop_is_refused_is_answered_by_what_exists_there(losses: Any, model: nn.Module, words: str) -> None:
    loop = Loop(make_network_run("cyclic", noise_multiplier=1.0), model=model.double())
    inputs, targets = next(iter(loop.loader))
    with loop.engine.recording():
        found = losses(loop, inputs, targets)
    with pytest.raises(LetheError, match=f"(?s){words}") as refused:
        loop.engine.backward(found)
    assert "clipper" not in str(refused.value).replace("the clipper's self-check", "")
    assert "recording(records" not in str(refused.value)


def test_a_forgotten_recording_is_answered_by_the_engine_s_own() -> None:
    loop = Loop()
    inputs, targets = next(iter(loop.loader))
    with pytest.raises(InputError, match=r"(?s)nothing was recorded.*with engine\.recording\(\):"):
        loop.engine.backward(unrecorded(loop, inputs, targets))


def test_pairs_that_lie_side_by_side_are_trained() -> None:
    """What the message says: D of (B, 2, d)."""
    loop = Loop(model=nn.Linear(COLUMNS, 1).double())
    for inputs, _ in loop.loader:
        with loop.engine.recording():
            real, fake = loop.model(torch.stack([inputs, torch.zeros_like(inputs)], dim=1)).unbind(1)
            losses = nn.functional.softplus(-real) + nn.functional.softplus(fake)
        loop.engine.backward(losses)
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    assert loop.engine.steps == 9


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
        lambda: PrivacyEngine(RUN).make_private(module=model, optimizer=parts, data=make_data()),  # pyright: ignore[reportArgumentType]
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
    with pytest.raises(InputError, match="NoLength has no length"):
        as_source(loader)
    model = make_network()
    with pytest.raises(InputError, match="NoLength has no length"):
        PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            epochs=1,
        )


class Graph:
    """What a library of graphs collates to: no tensor."""


def test_collated_graphs_are_told_of_padding_and_of_one_at_a_time() -> None:
    for collate, got in ((lambda records: Graph(), "is Graph"), (lambda records: torch.zeros(3 * len(records), 2), r"has shape \(3, 2\)")):
        loader: DataLoader[Any] = DataLoader([*FEATURES], batch_size=4, collate_fn=collate)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputError, match=rf"(?s){got}.*padded to one size, with a mask.*one at a time: physical_size=1"):
            as_source(loader)
