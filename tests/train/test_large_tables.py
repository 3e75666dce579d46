"""Training with large tables: by rows as whole, with rows that are selected, and in the memory of one gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from networks import fit_network, make_network_run
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adagrad, Adam, SparseAdam
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import lethe
from lethe.train import PrivacyEngine, SparseSelection, TrainOptions
from lethe.train.clip.parts import part

ROWS, WIDTH, RECORDS = 20_000, 4, 23
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # PyTorch's Adagrad does not say
SELECTED = SparseSelection(parameters=("table.weight",), threshold=0.0)


class Recommender(nn.Module):
    """Two looked-up rows and a linear score."""

    def __init__(self, dtype: torch.dtype = torch.float64, rows: int = ROWS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(rows, WIDTH, padding_idx=0, dtype=dtype), nn.Linear(2 * WIDTH, 1, dtype=dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of shape (B, 2)."""
        return self.head(self.table(tokens).tanh().flatten(1))[:, 0]


def data(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Few users, many items, some padding."""
    generator = torch.Generator().manual_seed(3)
    users, items = torch.randint(1, 9, (RECORDS,), generator=generator), torch.randint(0, ROWS, (RECORDS,), generator=generator)
    items[::7] = 0
    return torch.stack([users, items], 1), torch.randint(0, 2, (RECORDS,), generator=generator).to(dtype)


OPTIMIZERS: dict[str, Callable[[nn.Module], Any]] = {
    "none": lambda model: None,
    "sgd": lambda model: SGD(model.parameters(), lr=0.5),
    "momentum": lambda model: SGD(model.parameters(), lr=0.5, momentum=0.9),
    "adagrad": lambda model: Adagrad(model.parameters(), lr=0.5),
    "adam": lambda model: Adam(model.parameters(), lr=0.1),
}


def trained(optimizer: str = "none", run: lethe.Run | None = None, **options: Any) -> Recommender:
    """A model after the training of `make_network_run`."""
    model = Recommender()
    asked = make_network_run() if run is None else run
    fit_network(asked, model, nn.BCEWithLogitsLoss(reduction="none"), data(), optimizer=OPTIMIZERS[optimizer](model), **options)
    return model


def _losses(model: nn.Module, batch: Any) -> Tensor:
    return functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1], reduction="none")


def same(one: nn.Module, other: nn.Module) -> None:
    """Parameters that are equal but for roundings of float64."""
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_table_by_its_rows_is_trained_as_a_whole_one(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers are drawn in the same order, in micro-batches too."""

    def given() -> dict[str, Any]:
        return {"noise_generator": np.random.default_rng(1), "batch_generator": torch.Generator().manual_seed(2), "physical_size": 3}

    run = make_network_run(noise_multiplier=1.3)
    by_rows = trained(optimizer, run, **given())
    monkeypatch.setattr(part, "_LARGE", 2**60)
    same(by_rows, trained(optimizer, run, **given()))


@pytest.mark.parametrize("release", ["last", "all"])
def test_every_row_of_a_table_gets_noise(release: str) -> None:
    start, after = Recommender(), trained(run=make_network_run(noise_multiplier=1.0, release=release), seed=1)
    moved = (after.table.weight - start.table.weight).detach().flatten()
    expected = 0.5 * 0.4 / 5 * 9**0.5  # step size, clip norm, batch size, steps
    assert int((moved == 0).sum()) == 0
    assert float(moved.std()) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_without_noise_a_selection_changes_nothing(optimizer: str) -> None:
    """Every row that a record has a gradient in is above a threshold of 0."""
    for given in ({"seed": 1}, {"seed": 1, "method": "adaptive"}):
        same(trained(optimizer, sparse_selection=SELECTED, **given), trained(optimizer, **given))


@pytest.mark.parametrize("optimizer", ["none", "sgd", "adagrad"])
def test_only_selected_rows_are_trained(optimizer: str) -> None:
    """A share of Phi(-2) of the rows that nobody looked up, and those of the users that many records share."""
    run = make_network_run(noise_multiplier=1.0, steps=1, batches={"design": "full"})
    selection = SparseSelection(parameters=("table.*",), threshold=4.0, share=0.25)
    start, after = Recommender(), trained(optimizer, run, sparse_selection=selection, seed=2)
    moved = (after.table.weight != start.table.weight).any(1)
    assert 0.015 < float(moved.double().mean()) < 0.032
    assert bool((after.head.weight != start.head.weight).all())


def test_the_share_of_a_selection_is_recorded_and_certified() -> None:
    run, model = make_network_run(noise_multiplier=2.0), Recommender()
    fitted = fit_network(run, model, nn.BCEWithLogitsLoss(reduction="none"), data(), sparse_selection=SELECTED)
    assert fitted.run.sparse_selection == 0.1
    certificate = lethe.certify(fitted, 1e-5)
    assert certificate.epsilon == lethe.certify(run, 1e-5).epsilon
    assert lethe.verify(certificate).yes


def test_a_loop_of_ones_own_selects_rows_for_two_optimisers() -> None:
    """SparseAdam takes the table's gradient by its rows, Adam that of the head."""
    model = Recommender()
    start = model.table.weight.detach().clone()
    optimizers = [SparseAdam([model.table.weight], lr=0.1), Adam(model.head.parameters(), lr=0.1)]
    run = make_network_run(noise_multiplier=1.0, steps=2)
    selection = SparseSelection(parameters=("table.weight",), threshold=9.0)
    options = TrainOptions(sparse_selection=selection, progress=False)
    engine = PrivacyEngine(model, optimizers, lambda batch: _losses(model, batch), data(), run, options=options)
    for batch in engine.batches():
        engine.backward(batch)
        assert model.table.weight.grad is not None
        assert model.table.weight.grad.is_sparse
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert 0 < int((model.table.weight != start).any(1).sum()) < 200
    assert engine.recorded_run().sparse_selection == 0.1


class Largest(TorchDispatchMode):
    """The most bytes that an operation gave, but for those `known`."""

    nbytes = 0
    known: set[int]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See TorchDispatchMode."""
        out = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
        sizes = [leaf.nbytes for leaf in tensors if leaf.data_ptr() not in self.known]
        self.nbytes = max([self.nbytes, *sizes])
        return out


@pytest.mark.parametrize("selection", [None, SparseSelection(parameters=("table.weight",), threshold=1.0)])
def test_nothing_is_larger_than_a_gradient_of_the_table(selection: SparseSelection | None) -> None:
    """No gradients of records, no float64 table; of rows that are selected no table at all, in batches that are checked neither."""
    rows = 2**18
    model, largest = Recommender(torch.float32, rows), Largest()
    largest.known = {parameter.data_ptr() for parameter in model.parameters()}
    run, optimizer = make_network_run(noise_multiplier=9.0 if selection is None else 1e-3), SGD(model.parameters(), lr=0.5)
    options = TrainOptions(sparse_selection=selection, progress=False)
    engine = PrivacyEngine(model, optimizer, lambda batch: _losses(model, batch), data(torch.float32), run, options=options)
    with largest:
        for batch in engine.batches():
            engine.backward(batch)
            optimizer.step()
            optimizer.zero_grad()
    assert largest.nbytes == (4 * WIDTH * rows if selection is None else 8 * rows)
