"""The slow truth for rules of layers: every record alone, through torch's own layer and plain autograd."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lethe.train.clip.fast import Recording
from lethe.train.clip.parts.outer_products import Memory
from lethe.train.clip.parts.part import ParameterGradients, UnitRows
from lethe.train.clip.rules.registry import layers_of

F64 = torch.float64
Outputs = Callable[[Any], Tensor | Sequence[Tensor]]
"""Of a batch, records first, to one or more tensors, records first."""


def losses_of(outputs: Tensor | Sequence[Tensor]) -> Tensor:
    """One number a record, whose gradient differs in each number of the outputs."""
    tensors = [outputs] if isinstance(outputs, Tensor) else outputs
    flat = torch.cat([tensor.flatten(1).double() for tensor in tensors], dim=1)
    return (flat * (flat + torch.linspace(-1, 1, flat.shape[1], dtype=torch.float64))).sum(1)


def fast_parts(
    model: nn.Module, losses: Callable[[], Tensor], records: int, *, layout: str = "blocks", memory: int = 2**23
) -> dict[str, ParameterGradients]:
    """What the rules make of one batch, by the parameters' names."""
    names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
    recording = Recording(records, layout, Memory(memory), torch.device("cpu"))
    with recording.running(layers_of(model), list(names)):
        parts = recording.gradients(losses().sum())
    assert all(parameter.requires_grad for parameter in names)
    return {names[parameter]: part for parameter, part in parts.items()}


def true_gradients(model: nn.Module, losses: Callable[[int], Tensor], records: int) -> dict[str, Tensor]:
    """Of each trained parameter, shape (B, *shape), float64; `losses(i)` is that of record i alone."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in named}
    for record in range(records):
        model.zero_grad()
        losses(record).sum().backward()
        for name, parameter in named.items():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            rows[name].append(gradient.double().clone())
    model.zero_grad()
    return {name: torch.stack(gradients) for name, gradients in rows.items()}


@torch.no_grad()
def agree(parts: dict[str, ParameterGradients], truth: dict[str, Tensor], rel: float = 1e-9) -> None:
    """Norms, weighted sums, single gradients, sums over units, and what is left without a record are the true ones."""
    records = len(next(iter(truth.values())))
    scale = max(1e-3, max(float(rows.abs().max()) for rows in truth.values()))
    weights = torch.linspace(-1.0, 2.0, records, dtype=torch.float64)
    units = UnitRows([[0, records - 1], [1], []] if records > 2 else [[record] for record in range(records)], torch.device("cpu"))
    gone = torch.arange(records) == 1
    assert parts.keys() == truth.keys()

    def near(found: Tensor, expected: Tensor, power: int = 1) -> None:
        assert found.isfinite().all()
        torch.testing.assert_close(found.double().flatten(), expected.flatten(), rtol=rel, atol=rel * (10 * scale) ** power)

    for name, rows in truth.items():
        part = parts[name]
        near(part.rows().reshape(rows.shape), rows)
        near(part.squares(), rows.unsqueeze(-1).flatten(1).square().sum(1), 2)
        assert part.weighted(weights).dtype == torch.float64
        near(part.weighted(weights), torch.tensordot(weights, rows, 1))
        joined = part.grouped(units)
        near(joined.squares(), units(rows).sum(1).unsqueeze(-1).flatten(1).square().sum(1), 2)
        near(joined.weighted(torch.ones(len(units(rows)), dtype=torch.float64)), units(rows).sum(1).sum(0))
        part.drop(gone)
        near(part.weighted(weights), torch.tensordot(weights * ~gone, rows, 1))


def check(
    model: nn.Module, outputs: Outputs, batch: Any, *, rel: float = 1e-9, layout: str = "blocks", memory: int = 2**23, records: int = 3
) -> None:
    """The rules agree with the truth about this batch, a nest of tensors with records first."""

    def alone(record: int) -> Tensor:
        return losses_of(outputs(tree_map(lambda tensor: tensor[record : record + 1], batch)))

    parts = fast_parts(model, lambda: losses_of(outputs(batch)), records, layout=layout, memory=memory)
    agree(parts, true_gradients(model, alone, records), rel)


def output_of(layer: nn.Module, batch: Tensor) -> Tensor:
    """What a layer that takes records first gives; of several tensors the first."""
    output = layer(batch, batch, batch) if isinstance(layer, nn.MultiheadAttention) else layer(batch)
    return output[0] if isinstance(output, tuple) else output


def folded(layer: nn.Module, batch: Tensor, layout: str, *, memory: int = 2**23) -> None:
    """A layer that is given two rows a record, one after another or side by side."""

    def outputs(batch: Tensor) -> Tensor:  # (B, 2, ...)
        if layout == "interleaved":
            return output_of(layer, batch.flatten(0, 1)).unflatten(0, (len(batch), 2)).flatten(1)
        return output_of(layer, batch.transpose(0, 1).flatten(0, 1)).unflatten(0, (2, len(batch))).transpose(0, 1).flatten(1)

    check(layer, outputs, batch, layout=layout, memory=memory)
