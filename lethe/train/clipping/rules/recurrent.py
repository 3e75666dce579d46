"""Gradients of nn.LSTM, nn.GRU and nn.RNN: each weight is applied at many steps, so they follow from those of the gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from lethe.train.clipping.rules.outer_products import Applied, shift_part, weight_part
from lethe.train.clipping.rules.parts import Part, PartedGradients
from lethe.train.clipping.rules.replay import replaying
from lethe.train.clipping.rules.rule import Use, argument, output_gradients, wide
from lethe.train.clipping.rules.unrolled import CELLS, LayerWeights, Lengths, Unrolled, unroll
from lethe.train.clipping.unfollowed import UnfollowedError


class RecurrentGradients(PartedGradients):
    """nn.LSTM, nn.GRU and nn.RNN: several layers, both directions, projections, padded or packed records.

    The layer is computed again step by step, in float32 or better. Its outputs are (output, h_n), of an LSTM (output, h_n, c_n); of a
    packed input the gradient in `output.data` counts as that in the output, and record i is the i-th before sorting.

    Raises:
        InputError: an input without a dimension of records, or dropout whose masks cannot be drawn again.
    """

    def make_parts(self) -> Mapping[str, Part]:
        """See PartedGradients."""
        module = cast("nn.RNNBase", self.module)
        calls = [_applications(use, module) for use in self.uses]
        together = {name: [call[name] for call in calls] for name in calls[0]}
        return {name: shift_part(uses) if name.startswith("bias") else weight_part(uses) for name, uses in together.items()}


class _Sequences(NamedTuple):
    """Records padded to one length, steps first: the input (T, B, d), its packing if any, and lengths."""

    given: Tensor
    packing: PackedSequence | None
    lengths: Lengths


def _applications(use: Use, module: nn.RNNBase) -> dict[str, Applied]:
    """For each parameter, what it was applied to and the gradient in the result."""
    sequences = _sequences(argument(use, 0, "input"), module)
    given = sequences.given
    state, memory = _starts(argument(use, 1, "hx"), module, given)
    dropout = module.dropout if module.num_layers > 1 else 0.0
    _refuse_dropout_elsewhere(module, dropout, given.device)
    with replaying(use, module, dropout, given.device):
        layers: list[Unrolled] = []
        for layer, (own_state, own_memory) in enumerate(zip(state, memory, strict=True)):
            inputs = given if layer == 0 else _dropped(layers[-1].output, sequences, module, dropout)
            layers.append(unroll(CELLS[module.mode], _weights(module, layer), inputs, own_state, own_memory, sequences.lengths))
        return _differentiated(layers, _cotangents(use, layers, sequences, module), module)


def _sequences(given: Any, module: nn.RNNBase) -> _Sequences:
    packing, lengths = None, None
    if isinstance(given, PackedSequence):
        packing = given
        padded, lengths = pad_packed_sequence(packing)
    else:
        tensor = cast("Tensor", given)
        if tensor.dim() != 3:
            raise UnfollowedError(
                f"{type(module).__name__} got an input of {tensor.dim()} dimensions; it needs 3: records, steps, features.",
                source="the layer's input",
                remedy="for a single record, unsqueeze the dimension of records.",
            )
        padded = tensor.transpose(0, 1) if module.batch_first else tensor
    padded = wide(padded.detach())
    return _Sequences(padded, packing, Lengths(lengths, len(padded), padded.device))


def _starts(given: Any, module: nn.RNNBase, like: Tensor) -> tuple[Tensor, Tensor]:
    """States and memories at the start, shape (layers, D, B, ·)."""
    directions = 2 if module.bidirectional else 1
    width = module.proj_size or module.hidden_size
    if given is None:
        shape = (module.num_layers, directions, like.shape[1])
        return like.new_zeros(*shape, width), like.new_zeros(*shape, module.hidden_size)
    pair = given if module.mode == "LSTM" else (given, given)
    state, memory = (wide(cast("Tensor", tensor).detach()).unflatten(0, (module.num_layers, directions)) for tensor in pair)
    return state, memory


def _weights(module: nn.RNNBase, layer: int) -> LayerWeights:
    def stacked(kind: str) -> Tensor:
        return torch.stack([wide(getattr(module, _name(kind, layer, way)).detach()) for way in range(2 if module.bidirectional else 1)])

    return LayerWeights(
        inputs=stacked("weight_ih"),
        states=stacked("weight_hh"),
        input_shifts=stacked("bias_ih")[:, None] if module.bias else None,
        state_shifts=stacked("bias_hh")[:, None] if module.bias else None,
        projection=stacked("weight_hr") if module.proj_size else None,
    )


def _name(kind: str, layer: int, way: int) -> str:
    return f"{kind}_l{layer}{'_reverse' if way else ''}"


def _dropped(output: Tensor, sequences: _Sequences, module: nn.RNNBase, dropout: float) -> Tensor:
    """What the next layer is given, shape (T, B, D P); the mask is drawn as torch draws it: over the packed data, if packed."""
    if not (module.training and dropout > 0):
        return output
    packing = sequences.packing
    if packing is None:
        return functional.dropout(output, dropout)
    mask = functional.dropout(output.new_ones(len(packing.data), output.shape[2]), dropout)
    return output * _padded(mask, packing)


def _padded(data: Tensor, packing: PackedSequence) -> Tensor:
    return pad_packed_sequence(PackedSequence(data, packing.batch_sizes, packing.sorted_indices, packing.unsorted_indices))[0]


def _cotangents(use: Use, layers: list[Unrolled], sequences: _Sequences, module: nn.RNNBase) -> list[tuple[Tensor, Tensor]]:
    """The output tensors that a gradient came for, with it."""
    output, state, memory = output_gradients(use, 3)
    found: list[tuple[Tensor, Tensor]] = []
    if output is not None:
        if sequences.packing is not None:
            output = _padded(output, sequences.packing)
        elif module.batch_first:
            output = output.transpose(0, 1)
        found.append((layers[-1].output, wide(output)))
    if state is not None:
        found.append((torch.cat([layer.last_state for layer in layers]), wide(state)))
    if memory is not None and module.mode == "LSTM":
        found.append((torch.cat([layer.last_memory for layer in layers]), wide(memory)))
    return found


def _differentiated(layers: list[Unrolled], cotangents: list[tuple[Tensor, Tensor]], module: nn.RNNBase) -> dict[str, Applied]:
    shared = CELLS[module.mode].shared
    nodes: list[Tensor] = []
    for layer in layers:
        nodes += [layer.input_gates, *([] if shared else layer.state_gates), *(layer.states if module.proj_size else [])]
    outputs, gradients = zip(*cotangents, strict=True) if cotangents else ((), ())
    found = torch.autograd.grad(outputs, nodes, gradients, allow_unused=True) if cotangents else [None] * len(nodes)
    filled = iter([torch.zeros_like(node) if gradient is None else gradient for node, gradient in zip(nodes, found, strict=True)])
    applied: dict[str, Applied] = {}
    for place, layer in enumerate(layers):
        steps = len(layer.states)
        in_gates = next(filled)
        own_gates = in_gates if shared else torch.stack([next(filled) for _ in range(steps)])
        kinds = {"ih": (layer.inputs, in_gates), "hh": (layer.previous, own_gates)}
        if module.proj_size:
            kinds["hr"] = (torch.stack(layer.unprojected), torch.stack([next(filled) for _ in range(steps)]))
        for kind, (inputs, gates) in kinds.items():
            for way in range(2 if module.bidirectional else 1):
                pair = Applied(inputs[:, way].detach().transpose(0, 1), gates[:, way].transpose(0, 1))
                applied[_name(f"weight_{kind}", place, way)] = pair
                if kind != "hr" and module.bias:
                    applied[_name(f"bias_{kind}", place, way)] = pair
    return applied


def _refuse_dropout_elsewhere(module: nn.RNNBase, dropout: float, device: torch.device) -> None:
    if module.training and dropout > 0 and device.type != "cpu":
        raise UnfollowedError(
            f"{type(module).__name__} drops numbers between its layers (dropout = {dropout:g}) on {device.type}, by masks that cannot be "
            "drawn again.",
            source="the layer's dropout, in training mode",
            remedy=f"stack layers of num_layers=1 with nn.Dropout(p={dropout:g}) between them.",
        )
