"""nn.LSTM, GRU and RNN, and their cells: forward passes of our own, step by step, whose gates are watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.linear import watched_linear
from lethe.train.clip.rules.rule import Parts, Watch, as_computed, wide

Step = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(gates from the input, gates from the state, state, memory) -> (new state before any projection, new memory)."""


def recurrent(module: Any, watch: Watch, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
    """What nn.LSTM, nn.GRU or nn.RNN computes; dropout between layers draws over padded records.

    Args:
        module: the layer.
        watch: records a step.
        input: shape (B, T, d), or (T, B, d) where the layer is not batch_first; or packed.
        hx: the states at the start, as of the layer.
    Raises:
        NotImplementedError: no dimension of records.
    """
    packing = input if isinstance(input, PackedSequence) else None
    given: Any = input
    lengths: Any = None
    running: Tensor | None = None
    if packing is not None:
        given, lengths = pad_packed_sequence(packing, batch_first=True)
        times = torch.arange(given.shape[1], device=given.device)[:, None]
        running = times < lengths.to(given.device)
    elif given.dim() != 3:
        raise NotImplementedError("an input without a dimension of records")
    elif not module.batch_first:
        given = given.transpose(0, 1)
    directions = 2 if module.bidirectional else 1
    starts = [None, None] if hx is None else list(hx) if module.mode == "LSTM" else [hx, hx]
    ends: list[tuple[Tensor, Tensor]] = []
    output = given.transpose(0, 1)
    for layer in range(module.num_layers):
        if layer and module.training and module.dropout:
            output = functional.dropout(output, module.dropout)
        ways: list[Tensor] = []
        for way in range(directions):
            start = [None if states is None else states[layer * directions + way] for states in starts]
            inputs = _backwards(output, running) if way else output
            states, *end = _unrolled(module, watch, inputs.transpose(0, 1), start, f"_l{layer}{'_reverse' if way else ''}", running)
            ways.append(_backwards(states, running) if way else states)
            ends.append((end[0], end[1]))
        output = ways[0] if directions == 1 else torch.cat(ways, dim=2)
    last = [torch.stack(column) for column in zip(*ends, strict=True)]
    state = tuple(last) if module.mode == "LSTM" else last[0]
    if packing is None:
        return output.transpose(0, 1) if module.batch_first else output, state
    if packing.sorted_indices is not None:
        output, lengths = output[:, packing.sorted_indices], lengths[packing.sorted_indices.cpu()]
    return PackedSequence(pack_padded_sequence(output, lengths).data, *packing[1:]), state


def cell(module: Any, watch: Watch, input: Tensor, hx: Any = None) -> Any:
    """What nn.LSTMCell, nn.GRUCell or nn.RNNCell computes.

    Args:
        module: the cell.
        watch: records a step.
        input: shape (B, d).
        hx: the state, as of the cell.
    Raises:
        NotImplementedError: no dimension of records.
    """
    if input.dim() != 2:
        raise NotImplementedError("an input without a dimension of records")
    pair = list(hx) if isinstance(hx, tuple | list) else [hx, hx]
    _, state, memory = _unrolled(module, watch, input[:, None], pair, "", None)
    return (state, memory) if _mode(module) == "LSTM" else state


def _unrolled(
    module: Any, watch: Watch, given: Tensor, start: list[Tensor | None], suffix: str, running: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer in one direction: its states (T, B, P), and the last state and memory of each record."""
    names = [f"{kind}_{of}{suffix}" for of in ("ih", "hh") for kind in ("weight", "bias")]
    weights: list[Any] = [getattr(module, name, None) for name in names]
    weight, bias, own_weight, own_bias = weights
    projection, step = getattr(module, f"weight_hr{suffix}", None), _STEPS[_mode(module)]
    gates = watched_linear(watch, given, weight, bias, names[:2])
    state, memory = (
        gates.new_zeros(len(gates), width) if first is None else first.expand(len(gates), -1)
        for first, width in zip(start, (own_weight.shape[1], module.hidden_size), strict=True)
    )
    previous, memories, states = [], [], []
    for time, gate in enumerate(gates.unbind(1)):
        previous.append(state)
        new, new_memory = step(gate, functional.linear(state, own_weight, own_bias), state, memory)
        if projection is not None:
            new = watched_linear(watch, new, projection, None, (f"weight_hr{suffix}",))
        if running is not None:
            going = running[time][:, None]
            new, new_memory = torch.where(going, new, state), torch.where(going, new_memory, memory)
        state, memory = new, new_memory
        states.append(state)
        memories.append(memory)
    reset = _mode(module) == "GRU"
    inputs = [torch.stack(previous, 1), *([torch.stack(memories, 1)] if reset else [])]

    def rule(gradient: Tensor, inputs: tuple[Tensor, ...], kept: Memory) -> Parts:
        inner, gradient = as_computed(inputs[0], gradient), wide(gradient)
        if reset:  # the state's part of the last gate is multiplied by it
            *others, last = gradient.chunk(3, dim=2)
            gradient = torch.cat([*others, last * wide(inputs[1])], dim=2)
        yield names[2], OuterProducts(inner, gradient, kept)
        yield names[3], MaterialisedGradients(gradient.sum(1))

    watch(gates, tuple(inputs), rule)  # the gradient in the gates from the state follows from that in those from the input
    return torch.stack(states), state, memory


def _backwards(output: Tensor, running: Tensor | None) -> Tensor:
    """Shape (T, B, d), each record backwards in time, within its length."""
    if running is None:
        return output.flip(0)
    times = torch.arange(len(output), device=output.device)[:, None]
    places = torch.where(running, running.sum(0) - 1 - times, times)
    return output.gather(0, places[:, :, None].expand_as(output))


def _mode(module: Any) -> str:
    if isinstance(module, nn.RNNBase):
        return module.mode
    return f"RNN_{module.nonlinearity.upper()}" if isinstance(module, nn.RNNCell) else "LSTM" if isinstance(module, nn.LSTMCell) else "GRU"


def _lstm(given: Tensor, own: Tensor, _state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$c' = \sigma(f) c + \sigma(i) \tanh(g)$, $h = \sigma(o) \tanh(c')$."""
    entry, forget, update, leave = (given + own).chunk(4, dim=-1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(entry) * torch.tanh(update)
    return torch.sigmoid(leave) * torch.tanh(memory), memory


def _gru(given: Tensor, own: Tensor, state: Tensor, _memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$n = \tanh(n_x + \sigma(r) n_h)$, $h' = (1 - \sigma(z)) n + \sigma(z) h$; the second is $\sigma(r)$."""
    reset, keep, update = given.chunk(3, dim=-1)
    own_reset, own_keep, own_update = own.chunk(3, dim=-1)
    reset = torch.sigmoid(reset + own_reset)
    new = torch.tanh(update + reset * own_update)
    return new + torch.sigmoid(keep + own_keep) * (state - new), reset


_STEPS: dict[str, Step] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda given, own, _state, memory: (torch.tanh(given + own), memory),
    "RNN_RELU": lambda given, own, _state, memory: (torch.relu(given + own), memory),
}
