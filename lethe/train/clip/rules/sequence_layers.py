"""Per-record gradients of nn.MultiheadAttention, LSTM, GRU, RNN and their cells: forward passes of our own replace PyTorch's fused ones.
Inside a fused kernel no hook sees the projections and gates; here `watched_linear` computes each. The registry names these as rules.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.rule import Parts, Watch, as_computed, wide
from lethe.train.clip.rules.simple_layers import watched_linear

_APART = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


def attention(
    module: nn.MultiheadAttention,
    watch: Watch,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    r"""What the layer's own forward pass computes, with the same draws: $\mathrm{softmax}(qk^\top/\sqrt{d} + m)v$ in each head.

    Query, key and value have shapes (B, L, E), (B, S, kdim), (B, S, vdim), records second where the layer is not batch_first; of the masks
    (B, S), and (L, S) or (B heads, L, S).
    """
    if query.is_nested or query.dim() != 3:
        raise NotImplementedError("an input without a dimension of records, or a nested one")
    inputs = [query, key, value]
    if not module.batch_first:
        turned = {id(tensor): tensor.transpose(0, 1) for tensor in inputs}
        inputs = [turned[id(tensor)] for tensor in inputs]
    q, k, v = (
        projected.unflatten(2, (module.num_heads, module.head_dim)).transpose(1, 2) for projected in _projected(module, watch, inputs)
    )
    if module.add_zero_attn:
        k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
    dropout = module.dropout if module.training else 0.0
    causal = is_causal and key_padding_mask is None and not need_weights  # or else it is a hint at what the mask says
    mask = _mask(module, None if causal else attn_mask, key_padding_mask, q)
    weights = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.mT
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        weights = functional.dropout(weights, dropout) if dropout else weights
        context = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        context = functional.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
    last, names = module.out_proj, ("out_proj.weight", "out_proj.bias")
    output = watched_linear(watch, context.transpose(1, 2).flatten(2), last.weight, last.bias, names)
    return output if module.batch_first else output.transpose(0, 1), weights


def _projected(module: nn.MultiheadAttention, watch: Watch, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Queries, keys and values, (B, T, E); the learned key and value behind the others."""
    packed, shifts, size = module.in_proj_weight, module.in_proj_bias, module.embed_dim
    projected: list[Tensor] = []
    while len(projected) < 3:
        first = last = len(projected)
        while packed is not None and last < 2 and inputs[last + 1] is inputs[first]:
            last += 1  # what is one tensor is projected once
        rows = slice(first * size, (last + 1) * size)
        weight, name = (getattr(module, _APART[first]), _APART[first]) if packed is None else (packed[rows], "in_proj_weight")
        shift, around = None if shifts is None else shifts[rows], (rows.start, 3 * size - rows.stop)
        step = watched_linear(watch, inputs[first], weight, shift, (name, "in_proj_bias"), around, packed is None)
        projected += step.chunk(last + 1 - first, dim=-1)
    for index, name in ((1, "bias_k"), (2, "bias_v")):
        learned = getattr(module, name)
        if learned is not None:
            projected[index] = torch.cat([projected[index], _learned(watch, learned, name, len(inputs[0]))], dim=1)
    return projected


def _learned(watch: Watch, parameter: Tensor, name: str, records: int) -> Tensor:
    def rule(gradient: Tensor, _inputs: tuple[Tensor, ...], _memory: Memory) -> Parts:
        yield name, MaterialisedGradients(wide(gradient))

    return watch(parameter.repeat(records, 1, 1), (), rule)


def _mask(module: nn.MultiheadAttention, mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
    """What is added to the scores, broadcast to (B, H, L, S)."""
    added: list[Tensor] = []
    if mask is not None:
        mask = _as_added(mask, q.dtype)
        added.append(mask if mask.dim() == 2 or len(mask) == 1 else mask.unflatten(0, (-1, module.num_heads)))
    if padding is not None:
        added.append(_as_added(padding, q.dtype)[:, None, None, :])
    appended = (module.bias_k is not None) + int(module.add_zero_attn)
    return functional.pad(sum(added[1:], added[0]), (0, appended)) if added else None


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf) if mask.dtype == torch.bool else mask.to(dtype)


Step = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(gates from the input, gates from the state, state, memory) -> (new state before any projection, new memory)."""


def recurrent(module: Any, watch: Watch, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
    """What nn.LSTM, nn.GRU or nn.RNN computes; dropout between layers draws over padded records.

    The shape of `input` is (B, T, d), or (T, B, d) where the layer is not batch_first; or it is packed.
    """
    packing = input if isinstance(input, PackedSequence) else None
    sequence: Any = input
    lengths: Any = None
    running: Tensor | None = None
    if packing is not None:
        sequence, lengths = pad_packed_sequence(packing, batch_first=True)
        times = torch.arange(sequence.shape[1], device=sequence.device)[:, None]
        running = times < lengths.to(sequence.device)
    elif sequence.dim() != 3:
        raise NotImplementedError("an input without a dimension of records")
    elif not module.batch_first:
        sequence = sequence.transpose(0, 1)
    directions = 2 if module.bidirectional else 1
    starts = [None, None] if hx is None else list(hx) if module.mode == "LSTM" else [hx, hx]
    ends: list[tuple[Tensor, Tensor]] = []
    output = sequence.transpose(0, 1)
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
    """What nn.LSTMCell, nn.GRUCell or nn.RNNCell computes. The shape of `input` is (B, d)."""
    if input.dim() != 2:
        raise NotImplementedError("an input without a dimension of records")
    pair = list(hx) if isinstance(hx, tuple | list) else [hx, hx]
    _, state, memory = _unrolled(module, watch, input[:, None], pair, "", None)
    return (state, memory) if _mode(module) == "LSTM" else state


def _unrolled(
    module: Any, watch: Watch, sequence: Tensor, start: list[Tensor | None], suffix: str, running: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer in one direction: its states (T, B, P), and the last state and memory of each record."""
    names = [f"{kind}_{of}{suffix}" for of in ("ih", "hh") for kind in ("weight", "bias")]
    weights: list[Any] = [getattr(module, name, None) for name in names]
    weight, bias, own_weight, own_bias = weights
    projection, step = getattr(module, f"weight_hr{suffix}", None), _STEPS[_mode(module)]
    gates = watched_linear(watch, sequence, weight, bias, names[:2])
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

    def rule(gradient: Tensor, inputs: tuple[Tensor, ...], memory: Memory) -> Parts:
        inner, gradient = as_computed(inputs[0], gradient), wide(gradient)
        if reset:  # the state's part of the last gate is multiplied by it
            *gates_before, last = gradient.chunk(3, dim=2)
            gradient = torch.cat([*gates_before, last * wide(inputs[1])], dim=2)
        yield names[2], OuterProducts(inner, gradient, memory)
        yield names[3], MaterialisedGradients(gradient.sum(1))

    watch(gates, tuple(inputs), rule)  # the gradient in the gates from the state follows from that in those from the input
    return torch.stack(states), state, memory


def _backwards(output: Tensor, running: Tensor | None) -> Tensor:
    """Shape (T, B, d), each record backwards in time, within its length."""
    if running is None:
        return output.flip(0)
    times = torch.arange(len(output), device=output.device)[:, None]
    indices = torch.where(running, running.sum(0) - 1 - times, times)
    return output.gather(0, indices[:, :, None].expand_as(output))


def _mode(module: Any) -> str:
    if isinstance(module, nn.RNNBase):
        return module.mode
    return f"RNN_{module.nonlinearity.upper()}" if isinstance(module, nn.RNNCell) else "LSTM" if isinstance(module, nn.LSTMCell) else "GRU"


def _lstm(from_input: Tensor, from_state: Tensor, _state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$c' = \sigma(f) c + \sigma(i) \tanh(g)$, $h = \sigma(o) \tanh(c')$."""
    entry, forget, update, leave = (from_input + from_state).chunk(4, dim=-1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(entry) * torch.tanh(update)
    return torch.sigmoid(leave) * torch.tanh(memory), memory


def _gru(from_input: Tensor, from_state: Tensor, state: Tensor, _memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$n = \tanh(n_x + \sigma(r) n_h)$, $h' = (1 - \sigma(z)) n + \sigma(z) h$; the second is $\sigma(r)$."""
    reset, keep, update = from_input.chunk(3, dim=-1)
    own_reset, own_keep, own_update = from_state.chunk(3, dim=-1)
    reset = torch.sigmoid(reset + own_reset)
    new = torch.tanh(update + reset * own_update)
    return new + torch.sigmoid(keep + own_keep) * (state - new), reset


_STEPS: dict[str, Step] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda from_input, from_state, _state, memory: (torch.tanh(from_input + from_state), memory),
    "RNN_RELU": lambda from_input, from_state, _state, memory: (torch.relu(from_input + from_state), memory),
}
