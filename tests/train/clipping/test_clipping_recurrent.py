from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_oracle import Call, check, names_of
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lethe.errors import InputError
from lethe.train.clipping.rules.recurrent import RecurrentGradients
from lethe.train.clipping.rules.replay import RandomUse
from lethe.train.clipping.rules.rule import Use

KINDS = {
    "lstm": lambda **options: nn.LSTM(3, 4, **options),
    "projected": lambda **options: nn.LSTM(3, 4, proj_size=2, **options),
    "gru": lambda **options: nn.GRU(3, 4, **options),
    "tanh": lambda **options: nn.RNN(3, 4, nonlinearity="tanh", **options),
    "relu": lambda **options: nn.RNN(3, 4, nonlinearity="relu", **options),
}


def outputs_of(layer: nn.RNNBase, given: Any, hx: Any) -> list[Any]:
    output, last = layer(given, hx)
    return [output, *last] if isinstance(last, tuple) else [output, last]


def call_of(
    layer: nn.RNNBase,
    batch: int,
    steps: int,
    *,
    lengths: list[int] | None = None,
    starts: bool = False,
    used: tuple[bool, bool, bool] = (True, True, True),
    dtype: torch.dtype = torch.float64,
) -> Call:
    """A call with random inputs: packed if `lengths` are given."""
    ways, width = 1 + layer.bidirectional, layer.proj_size or layer.hidden_size
    given = torch.randn(batch, steps, layer.input_size, dtype=dtype)
    state = torch.randn(layer.num_layers * ways, batch, width, dtype=dtype)
    memory = torch.randn(layer.num_layers * ways, batch, layer.hidden_size, dtype=dtype)
    gradients = [torch.randn(batch, steps, ways * width, dtype=dtype), torch.randn_like(state), torch.randn_like(memory)]
    if layer.mode != "LSTM":
        gradients = gradients[:2]
    kept = [gradient if wanted else None for gradient, wanted in zip(gradients, used, strict=False)]

    def laid(tensor: Tensor) -> Tensor:
        return tensor if layer.batch_first else tensor.transpose(0, 1)

    def start(part: slice) -> Any:
        pair = (state[:, part].contiguous(), memory[:, part].contiguous())
        return (pair if layer.mode == "LSTM" else pair[0]) if starts else None

    def alone(module: nn.RNNBase, i: int) -> list[Tensor]:
        length = steps if lengths is None else lengths[i]
        output, *last = outputs_of(module, laid(given[i : i + 1, :length]), start(slice(i, i + 1)))
        return [laid(output), *last]

    def cotangents(i: int) -> list[Tensor | None]:
        length = steps if lengths is None else lengths[i]
        first = None if kept[0] is None else kept[0][i : i + 1, :length]
        return [first, *[None if gradient is None else gradient[:, i : i + 1] for gradient in kept[1:]]]

    whole: Tensor | PackedSequence = laid(given)
    first = None if kept[0] is None else laid(kept[0])
    if lengths is not None:
        whole = pack_padded_sequence(given, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        first = (
            None if kept[0] is None else pack_padded_sequence(kept[0], torch.tensor(lengths), batch_first=True, enforce_sorted=False).data
        )
    return Call(
        arguments=(whole, start(slice(None))),
        alone=alone,
        cotangents=cotangents,
        gradients=(first, *kept[1:]),
    )


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), batch=st.integers(0, 3), seed=st.integers(0, 99))
def test_every_option_agrees_with_one_record_at_a_time(data: st.DataObject, kind: str, batch: int, seed: int) -> None:
    torch.manual_seed(seed)
    layer = KINDS[kind](
        num_layers=data.draw(st.integers(1, 3)),
        bias=data.draw(st.booleans()),
        batch_first=data.draw(st.booleans()),
        bidirectional=data.draw(st.booleans()),
        dtype=torch.float64,
    )
    calls = [
        call_of(
            layer,
            batch,
            steps,
            lengths=data.draw(st.none() | st.lists(st.integers(1, steps), min_size=batch, max_size=batch)) if batch else None,
            starts=data.draw(st.booleans()),
            used=data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans())),
        )
        for steps in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    ]
    check(RecurrentGradients, layer, calls, batch)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_float32_and_gradients_by_ghost_norms(kind: str) -> None:
    torch.manual_seed(0)
    layer = {"lstm": nn.LSTM, "gru": nn.GRU}.get(kind, nn.RNN)(24, 32, num_layers=2)
    check(RecurrentGradients, layer, [call_of(layer, 4, 5, dtype=torch.float32)], 4, rel=1e-5)


def test_half_precision_is_measured_in_float32() -> None:
    torch.manual_seed(0)
    layer = nn.GRU(3, 4, dtype=torch.bfloat16)
    # 2^-8 a rounding of the oracle, which rounds at each of five steps
    check(RecurrentGradients, layer, [call_of(layer, 3, 5, dtype=torch.bfloat16)], 3, rel=5e-2)


@pytest.mark.parametrize("names", [{"weight_ih_l0"}, {"weight_hh_l1_reverse", "bias_ih_l0"}, {"bias_hh_l1"}])
def test_some_parameters_frozen(names: set[str]) -> None:
    torch.manual_seed(0)
    layer = nn.GRU(3, 4, num_layers=2, bidirectional=True, dtype=torch.float64)
    check(RecurrentGradients, layer, [call_of(layer, 3, 4)], 3, names=frozenset(names))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("lengths", [None, [3, 5, 1]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dropout_between_layers_is_replayed_from_the_kept_state(kind: str, lengths: list[int] | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = KINDS[kind](num_layers=3, dropout=0.5, bidirectional=True, batch_first=True, dtype=dtype)
    call = call_of(layer, 3, 5, lengths=lengths, dtype=dtype)
    state = torch.get_rng_state()
    output, *last = outputs_of(layer, *call.arguments)
    output = output.data if isinstance(output, PackedSequence) else output
    torch.stack([(one * gradient).sum() for one, gradient in zip([output, *last], call.gradients, strict=True)]).sum().backward()
    plain = call.use()
    use = RandomUse(plain.inputs, plain.grad_output, plain.keywords, plain.grad_outputs, state)
    sums = RecurrentGradients(layer, [use], names_of(layer)).weighted_sums(torch.ones(3, dtype=dtype))
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(sums[name].to(dtype), parameter.grad, rtol=tolerance, atol=tolerance)


def test_dropout_that_was_not_kept_is_refused_and_none_is_needed_in_one_layer() -> None:
    given = torch.zeros(5, 2, 3)
    with pytest.raises(InputError, match="was not kept"):
        RecurrentGradients(nn.GRU(3, 4, num_layers=2, dropout=0.5), [Use((given,), torch.zeros(5, 2, 4))], frozenset({"bias_ih_l0"}))
    evaluated = nn.GRU(3, 4, num_layers=2, dropout=0.5).eval()
    RecurrentGradients(evaluated, [Use((given,), torch.zeros(5, 2, 4))], frozenset({"bias_ih_l0"}))


def test_inputs_without_records_are_refused() -> None:
    with pytest.raises(InputError, match="2 dimensions"):
        RecurrentGradients(nn.GRU(3, 4), [Use((torch.zeros(5, 3),), torch.zeros(5, 4))], frozenset({"bias_ih_l0"}))


def test_records_of_a_packed_input_are_counted_before_sorting() -> None:
    torch.manual_seed(0)
    layer = nn.RNN(3, 4)
    packed = pack_padded_sequence(torch.randn(5, 3, 3), torch.tensor([1, 5, 3]), enforce_sorted=False)
    output = torch.zeros(5, 3, 4)
    output[:, 1] = 1.0
    gradient = pack_padded_sequence(output, torch.tensor([1, 5, 3]), enforce_sorted=False)
    assert pad_packed_sequence(gradient)[1].tolist() == [1, 5, 3]
    norms = RecurrentGradients(layer, [Use((packed,), gradient.data)], names_of(layer)).squared_norms()
    assert (norms > 0).tolist() == [False, True, False]
