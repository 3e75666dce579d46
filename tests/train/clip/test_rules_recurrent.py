"""nn.LSTM, nn.GRU, nn.RNN and their cells."""

from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_oracle import agree, check, fast_parts, folded, losses_of, true_gradients
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

F64 = torch.float64

KINDS = (nn.LSTM, nn.GRU, nn.RNN)


@st.composite
def layers(draw: st.DrawFn) -> nn.RNNBase:
    kind = draw(st.sampled_from(KINDS))
    options: dict[str, Any] = {name: draw(st.booleans()) for name in ("bias", "batch_first", "bidirectional")}
    options["num_layers"] = draw(st.integers(1, 2))
    if kind is nn.LSTM:
        options["proj_size"] = draw(st.sampled_from([0, 2]))
    if kind is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    torch.manual_seed(draw(st.integers(0, 99)))
    return kind(3, 4, dtype=F64, **options)


def starts(layer: nn.RNNBase, records: int) -> Any:
    """States at the start, records first."""
    places = layer.num_layers * (2 if layer.bidirectional else 1)
    state = torch.randn(records, places, layer.proj_size or layer.hidden_size, dtype=F64)
    return (state, torch.randn(records, places, layer.hidden_size, dtype=F64)) if isinstance(layer, nn.LSTM) else state


def turned(state: Any) -> Any:
    return tree_map(lambda tensor: tensor.transpose(0, 1), state)


def outputs_of(layer: nn.RNNBase, given: Any, start: Any) -> list[Tensor]:
    """The outputs and last states, records first; of packed records padded."""
    output, state = layer(given) if start is None else layer(given, turned(start))
    if isinstance(output, PackedSequence):
        output = pad_packed_sequence(output, batch_first=True)[0]
    elif not layer.batch_first:
        output = output.transpose(0, 1)
    return [output, *(turned(state) if isinstance(state, tuple) else [turned(state)])]


@given(layer=layers(), start=st.booleans(), steps=st.sampled_from([1, 3, 4]), layout=st.sampled_from(["blocks", "second"]))
@settings(max_examples=examples(40))
def test_recurrent(layer: nn.RNNBase, start: bool, steps: int, layout: str) -> None:
    given = torch.randn(3, steps, 3, dtype=F64)

    def outputs(batch: tuple[Tensor, Any]) -> list[Tensor]:
        return outputs_of(layer, batch[0] if layer.batch_first else batch[0].transpose(0, 1), batch[1] if start else None)

    check(layer, outputs, (given, starts(layer, 3)), layout=layout)


@given(layer=layers(), start=st.booleans(), lengths=st.lists(st.integers(1, 4), min_size=2, max_size=4), ordered=st.booleans())
@settings(max_examples=examples(40))
def test_packed_records(layer: nn.RNNBase, start: bool, lengths: list[int], ordered: bool) -> None:
    lengths = sorted(lengths, reverse=True) if ordered else lengths
    given, first = torch.randn(len(lengths), max(lengths), 3, dtype=F64), starts(layer, len(lengths))

    def losses(records: slice) -> Tensor:
        packed = pack_padded_sequence(given[records], torch.tensor(lengths[records]), batch_first=True, enforce_sorted=ordered)
        found = outputs_of(layer, packed, tree_map(lambda tensor: tensor[records], first) if start else None)
        found[0] = nn.functional.pad(found[0], (0, 0, 0, max(lengths) - found[0].shape[1]))
        return losses_of(found)

    parts = fast_parts(layer, lambda: losses(slice(None)), len(lengths))
    agree(parts, true_gradients(layer, lambda record: losses(slice(record, record + 1)), len(lengths)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_is_what_torch_gives(kind: type[nn.RNNBase]) -> None:
    """Outputs, packings and gradients in the input; the draws of dropout between layers too."""
    layer = kind(3, 4, num_layers=3, dropout=0.4, bidirectional=True, dtype=F64)
    given = torch.randn(5, 3, 3, dtype=F64, requires_grad=True)
    found: list[list[Any]] = []

    def losses() -> Tensor:
        torch.manual_seed(1)
        output, state = layer(given)
        packed, last = layer.eval()(pack_padded_sequence(given, torch.tensor([2, 5, 3]), enforce_sorted=False))
        layer.train()
        found.append([output, state, *packed, last])
        rows = pad_packed_sequence(packed, batch_first=True)[0]
        return losses_of([output.transpose(0, 1), turned(state[0] if isinstance(state, tuple) else state), rows])

    fast_parts(layer, losses, 3)
    found[-1].append(given.grad)
    given.grad = None
    losses().sum().backward()
    found[-1].append(given.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers(kind: type[nn.RNNBase]) -> None:
    layer = kind(3, 4, num_layers=2, dropout=0.4, dtype=F64)
    given = torch.randn(4, 3, 3, dtype=F64)

    def losses() -> Tensor:
        torch.manual_seed(1)
        return losses_of(layer(given)[0].transpose(0, 1))

    parts = fast_parts(layer, losses, 3)
    names = [name for name, _ in layer.named_parameters()]
    rows = [torch.autograd.grad(losses()[record], list(layer.parameters())) for record in range(3)]
    agree(parts, {name: torch.stack(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_in_float32(kind: type[nn.RNNBase]) -> None:
    layer = kind(3, 8, batch_first=True)
    check(layer, lambda batch: layer(batch)[0], torch.randn(3, 6, 3), rel=1e-5)


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
def test_two_rows_a_record(layout: str) -> None:
    for kind in KINDS:
        layer = kind(3, 4, batch_first=True, dtype=F64)
        model = nn.Module()
        model.layer = layer
        model.forward = lambda batch, layer=layer: layer(batch)[0]
        folded(model, torch.randn(3, 2, 4, 3, dtype=F64), layout)


@pytest.mark.parametrize("trained", ["weight_ih_l0", "bias_hh_l0", "weight_hr_l0"])
def test_frozen_parameters_have_no_part(trained: str) -> None:
    layer = nn.LSTM(3, 4, proj_size=2, batch_first=True, dtype=F64)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name == trained)
    check(layer, lambda batch: layer(batch)[0], torch.randn(3, 4, 3, dtype=F64))


CELLS = [nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.RNNCell(3, 4), nn.RNNCell(3, 4, bias=False, nonlinearity="relu")]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("start", [True, False])
def test_cells(cell: Any, start: bool) -> None:
    cell.double()

    def outputs(batch: Tensor) -> list[Tensor]:
        state = batch[:, :1].expand(-1, 4) if start else None
        state = (state, state) if start and isinstance(cell, nn.LSTMCell) else state
        found = []
        for inputs in batch.unflatten(1, (2, 3)).unbind(1):
            state = cell(inputs, state)
            found += state if isinstance(state, tuple) else [state]
        return found

    check(cell, outputs, torch.randn(3, 6, dtype=F64))


def test_under_checkpointing() -> None:
    model = nn.Sequential(nn.Linear(3, 3, dtype=F64), nn.GRU(3, 4, batch_first=True, dtype=F64))
    for reentrant in (True, False):

        def outputs(batch: Tensor, reentrant: bool = reentrant) -> Tensor:
            return checkpoint(lambda given: model[1](given)[0], model[0](batch), use_reentrant=reentrant)

        check(model, outputs, torch.randn(3, 4, 3, dtype=F64))


def test_one_record_without_its_dimension_is_not_followed() -> None:
    for layer, inputs in ((nn.GRU(3, 4), torch.randn(3, 3)), (nn.GRUCell(3, 4), torch.randn(3))):
        with pytest.raises(NotImplementedError, match="dimension of records"):
            fast_parts(layer, lambda layer=layer, inputs=inputs: layer(inputs)[0].sum(), 3)
