"""The slow truth: one record at a time through plain autograd, and what clipping must make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.clipping import Clipper

LossFunction = Callable[[Tensor], Tensor]

# Relative to the clipped norms. In float32 the clip factor alone is made smaller by 32 roundings, 3.8e-6, or twice as many.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)).double()


def rows(records: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(records, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def clipped(clipper: Clipper, batch: Tensor, **options: Any) -> dict[nn.Parameter, Tensor]:
    """The sums of one batch under `squares`; options go to backward."""
    with clipper.recording():
        output = clipper.model(batch)
    clipper.backward(squares(output), **options)
    return clipper.take()


def squares(output: Tensor) -> Tensor:
    """A loss whose gradient differs between the entries of an output of any shape; one a record."""
    flat = output.flatten(1)
    return (flat * torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype, device=flat.device) + flat.sin()).sum(1)


def gradients_of_records(model: nn.Module, batch: Any, loss: LossFunction = squares) -> dict[nn.Parameter, Tensor]:
    """Each trained parameter's gradients, shape (B, *shape), from B forward and backward passes of one record."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows: list[list[Tensor]] = []
    for record in range(len(batch)):
        told: Any = torch.autograd.grad(loss(model(batch[record : record + 1])).sum(), parameters, allow_unused=True)
        rows.append([torch.zeros_like(p) if row is None else row for p, row in zip(parameters, told, strict=True)])
    return {parameter: torch.stack([row[place] for row in rows]) for place, parameter in enumerate(parameters)}


def norms_of(gradients: dict[nn.Parameter, Tensor]) -> Tensor:
    return torch.stack([rows.double().reshape(len(rows), -1).square().sum(1) for rows in gradients.values()]).sum(0).sqrt()


def clipped_sums(gradients: dict[nn.Parameter, Tensor], clip_norm: float) -> dict[nn.Parameter, Tensor]:
    weights = (clip_norm / norms_of(gradients)).clamp(max=1.0)
    return {parameter: torch.tensordot(weights.to(rows.dtype), rows, dims=1) for parameter, rows in gradients.items()}


def assert_same(told: dict[nn.Parameter, Tensor], expected: dict[nn.Parameter, Tensor], scale: float) -> None:
    """`scale` is the size of what was added up: the sums themselves may cancel."""
    assert told.keys() == expected.keys()
    for parameter, tensor in expected.items():
        assert told[parameter].shape == parameter.shape
        assert float((told[parameter] - tensor).abs().max()) <= TOLERANCES[tensor.dtype] * scale


def assert_clips_like_single_records(model: nn.Module, batch: Any, *, loss: LossFunction = squares, verify: bool = True) -> Clipper:
    """Half the records are clipped; sums and norms must be those of single records. A model must stay as it was."""
    gradients = gradients_of_records(model, batch, loss)
    norms = norms_of(gradients)
    clip_norm = max(float(norms.median()), 1e-6)
    clipper = Clipper(model, clip_norm=clip_norm, verify=verify)
    trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    hooks = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()]
    for _ in range(3 if verify else 1):  # the third pass is the one without the self-check
        with clipper.recording():
            output = model(batch)
        clipper.backward(loss(output))
        assert_same(clipper.take(), clipped_sums(gradients, clip_norm), float(norms.clamp(max=clip_norm).sum()))
        assert clipper.last_norms is not None
        dtype = next(iter(gradients.values())).dtype
        assert torch.allclose(clipper.last_norms, norms, rtol=TOLERANCES[dtype], atol=1e-12)
    assert trained == {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    assert hooks == [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()]
    return clipper
