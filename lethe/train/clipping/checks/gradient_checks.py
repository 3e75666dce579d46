"""Self-check of gradients: the layer rules against plain autograd, for single records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.record_gradients import gradient_sites, require_apart, usable_records
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import ALLOWED, sample

_TRACED = 2  # records with gradients other than 0, whose gradients are compared with those of plain autograd


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The result of a comparison of gradients.

    Args:
        records: how many records it compared whose gradient is finite and not 0.
        heard: parameters that one of them has a gradient in other than 0.
        silent: parameters in the graph of the losses whose gradient is 0 for each of them.
    """

    records: int
    heard: frozenset[nn.Parameter]
    silent: frozenset[nn.Parameter]


def check_gradients(parts: Mapping[nn.Parameter, Part], losses: Tensor, counted: Tensor | None, recording: Recording) -> Seen:
    """Compare single records' gradients with those of plain autograd, on the same graph: the same dropout masks, the same losses.

    Besides, the gradient of such a record's loss must be exactly 0 at every other record's rows of every layer's output, which needs no
    tolerance; what mixes two of the other records is left to `check_scaled`.

    Args:
        parts: what the rules tell of each parameter.
        losses: shape (B,), with the parameters in their graph.
        counted: shape (B,); None: all.
        recording: of the forward pass, attached.
    Raises:
        InputError: they disagree, or records mix.
    """
    parameters = list(recording.found.names)
    sites = list(gradient_sites(recording))
    with torch.no_grad():
        squares = {parameter: part.squared_norms() for parameter, part in parts.items()}
    chosen = _chosen(usable_records(losses, counted), squares)
    seen, heard, present = 0, set[nn.Parameter](), set[nn.Parameter]()
    for record in chosen:
        wanted: list[Any] = [*(site.place for site in sites), *parameters]
        with unaccumulated(recording.watched()):
            told = torch.autograd.grad(losses[record], wanted, retain_graph=True, allow_unused=True)
        plain = told[len(sites) :]
        if not all(gradient is None or bool(torch.isfinite(gradient).all()) for gradient in plain):
            continue
        _compare(parts, squares, plain, record, recording)
        alone = torch.zeros(len(losses), dtype=torch.bool, device=losses.device)
        alone[record] = True
        require_apart(sites, told, alone)
        known = {parameter: gradient for parameter, gradient in zip(parameters, plain, strict=True) if gradient is not None}
        present |= known.keys()
        audible = {parameter for parameter, gradient in known.items() if bool((gradient != 0).any())}
        heard |= audible
        seen += bool(audible)
    return Seen(records=seen, heard=frozenset(heard), silent=frozenset(present - heard))


def _chosen(usable: Tensor, squares: Mapping[nn.Parameter, Tensor]) -> list[int]:
    """One record at random, and others that the rules give a gradient, since nothing is learned of two zeros.

    Records that the rules cannot measure add nothing, and are left out.
    """
    for square in squares.values():
        usable = usable & torch.isfinite(square).to(usable.device)
    first = sample(usable.nonzero()[:, 0].tolist(), 1)
    told = torch.stack([square.to(usable.device) > 0 for square in squares.values()]).any(0) if squares else torch.zeros_like(usable)
    everyone = (usable & told).nonzero()[:, 0].tolist()
    telling = sample([record for record in everyone if record not in first], _TRACED)
    return [*first, *telling[: _TRACED - len(set(first) & set(everyone))]]


def _compare(
    parts: Mapping[nn.Parameter, Part],
    squares: Mapping[nn.Parameter, Tensor],
    plain: Sequence[Tensor | None],
    record: int,
    recording: Recording,
) -> None:
    whole = sum(float(gradient.double().square().sum()) for gradient in plain if gradient is not None) ** 0.5
    for (parameter, name), gradient in zip(recording.found.names.items(), plain, strict=True):
        expected = torch.zeros_like(parameter) if gradient is None else gradient
        told, square = torch.zeros_like(parameter), 0.0
        if (part := parts.get(parameter)) is not None:
            alone = torch.zeros(len(squares[parameter]), dtype=torch.float64, device=parameter.device)
            alone[record] = 1.0
            with torch.no_grad():
                told, square = part.weighted_sum(alone).reshape(parameter.shape), float(squares[parameter][record])
        size = float(expected.double().norm())
        allowed = max(ALLOWED[recording.precision], ALLOWED[parameter.dtype]) * (size + 0.01 * whole)
        error = float((told.double() - expected.double()).norm())
        gap = abs(max(square, 0.0) ** 0.5 - size)
        if not (error <= allowed and gap <= allowed):
            raise UnfollowedError(
                f"the gradient of record {record} in {name} is off by {max(error, gap):.3g} from plain autograd's, of norm {size:.3g}.",
                source="the clipper's self-check",
                remedy="look for a layer or a loss that mixes records or does not keep them along the first dimension, for a weight "
                "that is read outside its layer, or for a hand-written rule that is wrong; if there "
                "is none, begin with a batch of another size: this one may be as long as another dimension.",
                lasting=False,
            )
