"""What people put around a private training, and what they leave in their loops: modes that watch, sparse tables, flat losses, lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from private_loops import Loop, losses_of
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from lethe.errors import InputError
from lethe.train import PrivacyEngine, TrainOptions, fit
from lethe.train.data.loaders import as_source

RUN = make_network_run(noise_multiplier=1.0)
FEATURES, LABELS = make_data()
TOKENS = torch.randint(1, 7, (len(LABELS), 2), generator=torch.Generator().manual_seed(0))


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
            moved.append(
                flat(fit(model, CROSS_ENTROPY, (TOKENS, LABELS), RUN, options=TrainOptions(seed=0, physical_size=physical_size)).model)
            )
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


def parts_of(model: nn.Module) -> list[torch.optim.Optimizer]:
    first, *others = model.parameters()
    return [torch.optim.SGD([first], lr=0.5), torch.optim.AdamW(others, lr=0.1)]


def test_several_optimisers_take_the_steps_of_each() -> None:
    """In fit and in a loop of one's own: as one optimiser whose step calls both."""
    ends = []
    for way in ("fit", "loop"):
        model = make_network()
        parts = parts_of(model)
        if way == "fit":
            fit(model, CROSS_ENTROPY, make_data(), RUN, optimizer=parts, options=TrainOptions(seed=3))
        else:
            engine = PrivacyEngine(model, parts, losses_of(model), make_data(), RUN, options=TrainOptions(seed=3))
            for batch in engine.batches():
                engine.backward(batch)
                parts[0].step()
                assert engine.steps == engine.drawn - 1
                parts[1].step()
                assert engine.steps == engine.drawn
                for part in parts:
                    part.zero_grad()
            assert engine.recorded_run().total_steps == RUN.total_steps
        ends.append(flat(model))
    torch.testing.assert_close(*ends, rtol=0, atol=1e-9)
    assert ((ends[0] - flat(make_network())).abs() > 1e-6).all()


def test_a_step_of_some_optimisers_alone_is_no_step(tmp_path: Path) -> None:
    model = make_network()
    parts = parts_of(model)
    kept = TrainOptions(checkpoints=tmp_path)
    engine = PrivacyEngine(model, parts, losses_of(model), make_data(), RUN, options=kept)
    batches = iter(engine.batches())
    engine.backward(next(batches))
    parts[0].step()
    with pytest.raises(InputError, match="no private gradient"):
        parts[0].step()
    with pytest.raises(InputError, match="step 1 was not taken"):
        next(batches)
    parts[1].step()
    engine.save()
    engine.close()
    again = make_network()
    resumed = PrivacyEngine(again, parts_of(again), losses_of(again), make_data(), RUN, options=kept)
    assert (resumed.resumed, torch.equal(flat(again), flat(model))) == (1, True)
    resumed.close()


class NoLength:
    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return FEATURES[place], int(LABELS[place])


def test_a_loader_of_data_without_a_length_is_refused_by_name() -> None:
    loader: DataLoader[Any] = DataLoader(NoLength(), batch_size=4)  # pyright: ignore[reportArgumentType]
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    words: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "epochs": 1}
    for read in (
        lambda: as_source(loader),
        lambda: PrivacyEngine(model, optimizer, losses_of(model), loader, **words),
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
