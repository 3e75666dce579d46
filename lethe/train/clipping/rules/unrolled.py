"""Recurrent layers computed step by step, so that gradients at their gates are available."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Cell(NamedTuple):
    """One step of all directions at once.

    Args:
        gate_count: gates a hidden unit has, 4 in an LSTM, 3 in a GRU, 1 in a plain network.
        step: (gates from the input, gates from the state, state, memory) -> (new state before any projection, new memory), all
            of shape (D, B, ·); the memory of cells without one is the state.
        shared: whether a step only uses the sum of both kinds of gates, whose gradients are then equal.
    """

    gate_count: int
    step: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    shared: bool


class LayerWeights(NamedTuple):
    """The parameters of one layer, its D directions stacked: (D, G, d), (D, G, P), (D, 1, G) or None, and (D, P, H) or None."""

    inputs: Tensor
    states: Tensor
    input_shifts: Tensor | None
    state_shifts: Tensor | None
    projection: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unrolled:
    """One layer, computed; nodes of a graph, shapes (T, D, B, ·), direction 1 in its own order of time."""

    inputs: Tensor
    input_gates: Tensor
    previous: Tensor
    """The states before each step."""
    state_gates: list[Tensor]
    unprojected: list[Tensor]
    states: list[Tensor]
    """New states of each step, before those of records that have ended are put back."""
    output: Tensor
    """Shape (T, B, D P), in the order of time."""
    last_state: Tensor
    last_memory: Tensor


class Lengths:
    """The lengths of records padded to one length; without them all are as long.

    Args:
        lengths: shape (B,), or None.
        steps: T.
        device: where.
    """

    def __init__(self, lengths: Tensor | None, steps: int, device: torch.device) -> None:
        self._lengths = None if lengths is None else lengths.to(device)
        self._times = torch.arange(steps, device=device)[:, None]

    def running(self) -> Tensor | None:
        """Which records have not ended at each step, shape (T, B, 1); None: all."""
        return None if self._lengths is None else (self._times < self._lengths)[:, :, None]

    def reversed(self, tensor: Tensor) -> Tensor:
        """Each record of a tensor of shape (T, B, ·) backwards in time, within its length."""
        if self._lengths is None:
            return tensor.flip(0)
        places = torch.where(self._times < self._lengths, self._lengths - 1 - self._times, self._times)
        return tensor.gather(0, places[:, :, None].expand_as(tensor))


def unroll(cell: Cell, weights: LayerWeights, given: Tensor, state: Tensor, memory: Tensor, lengths: Lengths) -> Unrolled:
    """Compute one layer.

    Args:
        cell: its kind.
        weights: its parameters.
        given: shape (T, B, d).
        state: at the start, shape (D, B, P).
        memory: at the start, shape (D, B, H).
        lengths: of the records.
    """
    directions = len(weights.inputs)
    inputs = given[:, None] if directions == 1 else torch.stack([given, lengths.reversed(given)], dim=1)
    input_gates = inputs @ weights.inputs.mT
    if weights.input_shifts is not None:
        input_gates = input_gates + weights.input_shifts
    if not input_gates.requires_grad:
        input_gates.requires_grad_()
    running = lengths.running()
    previous: list[Tensor] = []
    state_gates: list[Tensor] = []
    unprojected: list[Tensor] = []
    states: list[Tensor] = []
    kept: list[Tensor] = []
    turned = weights.states.mT
    for time, gates in enumerate(input_gates.unbind(0)):
        previous.append(state)
        own = state @ turned if weights.state_shifts is None else torch.baddbmm(weights.state_shifts, state, turned)
        # At the first step nothing before it is a node of the graph.
        state_gates.append(own if own.requires_grad else own.requires_grad_())
        raw, new_memory = cell.step(gates, own, state, memory)
        new_state = raw if weights.projection is None else raw @ weights.projection.mT
        unprojected.append(raw)
        states.append(new_state)
        if running is None:
            state, memory = new_state, new_memory
        else:
            state, memory = torch.where(running[time], new_state, state), torch.where(running[time], new_memory, memory)
        kept.append(state)
    both = torch.stack(kept).unbind(1)
    output = both[0] if directions == 1 else torch.cat([both[0], lengths.reversed(both[1])], dim=2)
    return Unrolled(
        inputs=inputs,
        input_gates=input_gates,
        previous=torch.stack(previous),
        state_gates=state_gates,
        unprojected=unprojected,
        states=states,
        output=output,
        last_state=state,
        last_memory=memory,
    )


def _lstm_step(given: Tensor, own: Tensor, _state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$c' = \sigma(f) c + \sigma(i) \tanh(g)$, $h = \sigma(o) \tanh(c')$."""
    entry, forget, update, leave = (given + own).chunk(4, dim=-1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(entry) * torch.tanh(update)
    return torch.sigmoid(leave) * torch.tanh(memory), memory


def _gru_step(given: Tensor, own: Tensor, state: Tensor, _memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$n = \tanh(n_x + \sigma(r) n_h)$, $h' = (1 - \sigma(z)) n + \sigma(z) h$."""
    reset, keep, update = given.chunk(3, dim=-1)
    own_reset, own_keep, own_update = own.chunk(3, dim=-1)
    new = torch.tanh(update + torch.sigmoid(reset + own_reset) * own_update)
    state = new + torch.sigmoid(keep + own_keep) * (state - new)
    return state, state


def _tanh_step(given: Tensor, own: Tensor, _state: Tensor, _memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$h' = \tanh(x + h)$, in gates."""
    state = torch.tanh(given + own)
    return state, state


def _relu_step(given: Tensor, own: Tensor, _state: Tensor, _memory: Tensor) -> tuple[Tensor, Tensor]:
    r"""$h' = \max(x + h, 0)$, in gates."""
    state = torch.relu(given + own)
    return state, state


CELLS: dict[str, Cell] = {
    "LSTM": Cell(4, _lstm_step, shared=True),
    "GRU": Cell(3, _gru_step, shared=False),
    "RNN_TANH": Cell(1, _tanh_step, shared=True),
    "RNN_RELU": Cell(1, _relu_step, shared=True),
}
"""By `mode`, as torch calls it."""
