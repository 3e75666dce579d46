"""From a recorded forward pass and its gradients to one Part per parameter."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.checks.graphs import Graph, kind_of, nodes_of, of_kind
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.records.arrivals import Arrivals, Told
from lethe.train.clipping.records.lots import Lot
from lethe.train.clipping.records.rows import added_up, with_positions
from lethe.train.clipping.rules.embedding import EmbeddingGradients
from lethe.train.clipping.rules.linear import ConvolutionOfOneGradients, LinearGradients
from lethe.train.clipping.rules.normalisation import LayerNormGradients, RMSNormGradients
from lethe.train.clipping.rules.parts import Part, PartedGradients, Rows
from lethe.train.clipping.rules.rule import LayerGradients, Rule, Use
from lethe.train.clipping.shared import Shared
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.clipping.workspace import arrived
from lethe.train.model_state.module_attributes import attribute_of

# Rules to which several rows of a record are as good as several positions.
_AT_POSITIONS = (LinearGradients, ConvolutionOfOneGradients, LayerNormGradients, RMSNormGradients, EmbeddingGradients)


class _LayerPart(Part):
    """One parameter of a layer whose rule tells of no parts."""

    def __init__(self, layer: LayerGradients, name: str) -> None:
        self._layer = layer
        self._name = name

    def squared_norms(self) -> Tensor:
        """See Part."""
        return self._layer.squared_norms()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See Part; record by record where the rule adds in less than float64."""
        total = self._layer.weighted_sums(weights)[self._name]
        if total.dtype == torch.float64:
            return total
        total = torch.zeros_like(total, dtype=torch.float64)
        for record in range(len(weights)):
            alone = torch.zeros_like(weights).index_copy_(0, torch.tensor([record], device=weights.device), weights[record : record + 1])
            total.add_(self._layer.weighted_sums(alone)[self._name])
        return total

    def per_record(self) -> Tensor:
        """See Part."""
        return self._layer.per_record(self._name)


def backward(recording: Recording, total: Tensor, *, keep: bool) -> dict[nn.Parameter, Part]:
    """One backward pass over a recording, and what it tells of each parameter; parameters without gradients are left out.

    Args:
        recording: of the forward pass that `total` comes from.
        total: the sum of the losses, a scalar.
        keep: whether the graph is still needed afterwards.
    Raises:
        InputError: `total` comes from another forward pass, a parameter was used where no rule could see it, or a layer was not given
            the records first.
    """
    _require_joined(recording, total)
    calls = deque((module, call) for module, made in recording.calls.items() for call in made)
    edges = [edge for _, call in calls for edge in call.edges if edge is not None]
    taped = recording.tape.wanted()
    wanted: Sequence[Any] = [*edges, *taped, *(tensor for _, tensor in _leaks(recording))]
    with unaccumulated(recording.watched()):
        told = torch.autograd.grad(total, wanted, allow_unused=True, retain_graph=keep) if wanted else ()
    count = len(edges)
    if keep:
        recording.told = dict(zip(wanted, told, strict=True))
    _refuse_leaks(recording, told[count + len(taped) :])
    if not any(gradient is not None for gradient in told):
        raise _no_gradients()
    rows_of = recording.tape.gradients(told[count : count + len(taped)])
    # What a layer's part does not hold is let go before the next layer's is made.
    ahead = deque(told[:count])
    del told
    if not keep:
        recording.calls.clear()
        recording.folds.end()
    grouped: dict[nn.Module, Told] = {}
    while calls:
        module, call = calls.popleft()
        grouped.setdefault(module, []).append((call, [None if edge is None else ahead.popleft() for edge in call.edges]))
    parts: dict[nn.Parameter, list[Part]] = {}
    for module in list(grouped):
        for parameter, part in _of_layer(recording, module, grouped.pop(module)):
            parts.setdefault(parameter, []).append(part)
    return _whole(parts, rows_of)


def backward_in_turn(recording: Recording, total: Tensor, nodes: Graph) -> dict[nn.Parameter, Part]:
    """`backward` for a graph that nobody needs afterwards: each layer's part is made and measured as soon as its gradients are there.

    So most of what the forward pass kept is gone by the time when formed gradients take its place.

    Args:
        recording: of the forward pass that `total` comes from.
        total: the sum of the losses, a scalar.
        nodes: of the graph of the losses; used up.
    Raises:
        InputError: as in `backward`.
    """
    _require_joined(recording, total)
    taped, leaks = recording.tape.wanted(), _leaks(recording)
    # All leaves, so that every node is computed.
    leaves = {id(node.variable): node.variable for node in of_kind(nodes, "AccumulateGrad".__eq__)}
    wanted: list[Any] = [*taped, *(tensor for _, tensor in leaks)]
    known = {id(entry) for entry in wanted}
    wanted += [leaf for key, leaf in leaves.items() if key not in known]
    used = Counter(parameter for own in recording.found.covered.values() for parameter in own.values())
    elsewhere = _read_elsewhere(recording)
    made: dict[nn.Module, list[tuple[nn.Parameter, Part]]] = {module: [] for module in recording.calls}
    lot = Lot()

    def hand_on(module: nn.Module, told: Told) -> None:
        size = sum(gradient.nbytes for _, gradients in told for gradient in gradients if gradient is not None)
        made[module] = _of_layer(recording, module, told)
        seen = Counter(parameter for parameter, _ in made[module])
        for parameter, part in made[module]:
            if used[parameter] == seen[parameter] == 1 and parameter not in elsewhere:
                lot.add(part)
            else:
                arrived(size)

    arrivals = Arrivals(recording.calls, nodes.kinds, hand_on)
    nodes.release()
    with unaccumulated(recording.watched()), arrivals.awaited():
        told = torch.autograd.grad(total, wanted, allow_unused=True) if wanted else ()
    lot.settle()
    _refuse_leaks(recording, told[len(taped) : len(taped) + len(leaks)])
    if not any(made.values()) and not any(gradient is not None for gradient in told[: len(taped)]):
        raise _no_gradients()
    rows_of = recording.tape.gradients(told[: len(taped)])
    recording.folds.end()
    parts: dict[nn.Parameter, list[Part]] = {}
    for found in made.values():
        for parameter, part in found:
            parts.setdefault(parameter, []).append(part)
    return _whole(parts, rows_of)


def _read_elsewhere(recording: Recording) -> set[nn.Parameter]:
    """The parameters that the tape may tell of."""
    sources = recording.tape.sources()
    read = {id(source) for source in sources}
    read |= {id(node.variable) for source in sources for node in nodes_of(source) if kind_of(node) == "AccumulateGrad"}
    return {parameter for parameter, alias in recording.tape.aliases.items() if id(alias) in read}


def _no_gradients() -> UnfollowedError:
    return UnfollowedError(
        "the losses do not come from the last recording: no layer of the model gets a gradient from them.",
        remedy="call backward once after each recording (with engine.recording():), with the losses of its forward pass.",
    )


def _of_layer(recording: Recording, module: nn.Module, told: Told) -> list[tuple[nn.Parameter, Part]]:
    """The parts of one layer's parameters; `told` is used up."""
    uses: dict[int, list[Use]] = {}
    for call, gradients in told:
        use = call.use(gradients)
        if use is None:
            continue
        call.untouched.require(recording.found.describe(module))
        rows = call.rows
        if rows > 1 and recording.found.rules[module] in _AT_POSITIONS:
            use, rows = with_positions(use, rows), 1
        uses.setdefault(rows, []).append(use)
    told.clear()
    parts: list[tuple[nn.Parameter, Part]] = []
    for rows, made in uses.items():
        _require_records(recording, module, made, rows)
        own = recording.found.covered[module]
        for name, part in _parts(recording.found.rules[module], module, made, frozenset(own)).items():
            parts.append((own[name], part if rows == 1 else added_up(part, rows, own[name].numel())))
    return parts


def _whole(parts: dict[nn.Parameter, list[Part]], rows_of: dict[nn.Parameter, Tensor]) -> dict[nn.Parameter, Part]:
    for parameter, rows in rows_of.items():
        # A scalar counts as a vector of one.
        parts.setdefault(parameter, []).append(Rows(rows.reshape(len(rows), *(parameter.shape or (1,)))))
    return {parameter: _joined(found, parameter.numel()) for parameter, found in parts.items()}


def _require_joined(recording: Recording, total: Tensor) -> None:
    """Refuse an output of as many rows as others that is not only joined to these: its rows may belong to other records."""
    doubtful = [(module, call) for module, calls in recording.calls.items() for call in calls if call.doubtful]
    nodes = list(nodes_of(total)) if doubtful else []
    for module, call in doubtful:
        for edge in call.edges:
            if edge is not None and not recording.folds.joined(edge, nodes):
                raise UnfollowedError(
                    f"{recording.found.describe(module)} is given {call.rows} rows for each of {recording.records} records, and "
                    "nothing shows which belongs to which.",
                    source="the model's forward pass",
                    remedy="flatten the records' dimension and the next one, in this order.",
                )


def _joined(found: list[Part], numbers: int) -> Part:
    if len(found) > 1 and not all(part.whole for part in found):
        raise UnfollowedError("a parameter that several layers read was measured in one of them before the others.")
    return found[0] if len(found) == 1 else Shared(found, numbers)


def _parts(rule: Rule, module: nn.Module, uses: list[Use], names: frozenset[str]) -> dict[str, Part]:
    if isinstance(rule, type) and issubclass(rule, PartedGradients):
        return rule(module, uses, names).parts
    return {name: _LayerPart(rule(module, uses, frozenset((name,))), name) for name in sorted(names)}


def _require_records(recording: Recording, module: nn.Module, uses: list[Use], rows: int) -> None:
    dimension = 1 if attribute_of(module, "batch_first", True) is False else 0
    for use in uses:
        if use.grad_outputs is None and recording.records is not None and use.grad_output.shape[dimension] != recording.records * rows:
            raise UnfollowedError(
                f"{recording.found.describe(module)} gave {use.grad_output.shape[dimension]} rows for {recording.records} records.",
                source="the model's forward pass",
                remedy="keep the records' dimension by itself; flatten the others only.",
            )


def _leaks(recording: Recording) -> list[tuple[nn.Parameter, Tensor]]:
    """Tensors that must get no gradient, with their parameters: one that gets some was used where no rule could see it."""
    return [] if recording.attached else [*recording.tape.aliases.items(), *((parameter, parameter) for parameter in recording.found.names)]


def _refuse_leaks(recording: Recording, told: Sequence[Tensor | None]) -> None:
    names = recording.found.names
    leaked = sorted({names[parameter] for (parameter, _), gradient in zip(_leaks(recording), told, strict=True) if gradient is not None})
    if leaked:
        raise UnfollowedError(
            f"parameter {', '.join(leaked)} is used outside the forward of its own layer, where its records' gradients cannot be seen.",
            source="the model's forward pass, or the losses",
            remedy="call the layer itself instead of reading its weight (to tie two layers, let both own the parameter), or freeze it, "
            "or register a rule for the module that reads it: lethe.train.clipping.register_rule.",
        )
