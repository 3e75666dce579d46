"""Gradients at layer outputs, one row per record; they show where the loss of one record depends on another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.records.calls import Call
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import BATCH_STATISTICS


def usable_records(losses: Tensor, counted: Tensor | None) -> Tensor:
    """Which records are counted and have a finite loss, shape (B,)."""
    finite = torch.isfinite(losses.detach())
    return finite if counted is None else finite & counted


@dataclass(frozen=True, slots=True, eq=False)
class GradientSite:
    """A place in the graph whose gradient has `rows` rows a record, along `dimension`; `where` names it."""

    place: Any
    dimension: int
    where: str
    rows: int = 1


def gradient_sites(recording: Recording) -> Iterator[GradientSite]:
    """All places of a recording whose gradient has one row a record."""
    for module, calls in recording.calls.items():
        for call in calls:
            for place, edge in enumerate(call.edges):
                dimension = _dimension(module, call, place)
                if edge is not None and dimension is not None:
                    yield GradientSite(edge, dimension, recording.found.describe(module), call.rows)
    for wanted, rows in recording.tape.sites():
        yield GradientSite(wanted, 0, "a module whose own parameters no rule covers", rows)


def _dimension(module: nn.Module, call: Call, place: int) -> int | None:
    """The dimension of records of one of a layer's outputs; None if it has none, as in a packed sequence."""
    first = 1 if getattr(module, "batch_first", True) is False else 0
    if isinstance(module, nn.RNNBase):
        if place == 0:
            return None if any(isinstance(entry, PackedSequence) for entry in (*call.inputs, *call.keywords.values())) else first
        return 1
    if isinstance(module, nn.MultiheadAttention):
        return first if place == 0 else 0
    return first if call.single else None


def gradients_at(sites: Sequence[GradientSite], losses: Tensor, weights: Tensor, recording: Recording) -> list[Tensor | None]:
    r"""The gradient of $\sum_i v_i \ell_i$ at each site; None where there is none.

    Args:
        sites: where.
        losses: $\ell$, shape (B,).
        weights: v, shape (B,).
        recording: whose parameters' hooks stay out of it.
    """
    with unaccumulated(recording.watched()):
        # Of a sum: torch imports a computer algebra to look at a gradient that it is given.
        total = (losses * weights.to(losses)).sum()
        return list(torch.autograd.grad(total, [site.place for site in sites], retain_graph=True, allow_unused=True))


def rows_of(site: GradientSite, gradient: Tensor | None, records: int) -> Tensor | None:
    """The gradient with one row a record, shape (B, ...); None where there is none or its records cannot be told.

    Args:
        site: where it was taken.
        gradient: of any shape.
        records: B.
    """
    if gradient is None or gradient.dim() <= site.dimension or gradient.shape[site.dimension] != records * site.rows:
        return None
    return gradient.transpose(0, site.dimension).reshape(records, -1)


def require_apart(sites: Sequence[GradientSite], told: Sequence[Tensor | None], asked: Tensor) -> None:
    """Refuse a gradient of some records' losses that is not exactly 0 at the other records' rows.

    Args:
        sites: where.
        told: the gradients there.
        asked: shape (B,), bool; whose losses they are of.
    Raises:
        InputError: another record's row is touched.
    """
    for site, gradient in zip(sites, told, strict=False):
        if (rows := rows_of(site, gradient, len(asked))) is None:
            continue
        touched = ((rows != 0) & ~torch.isnan(rows)).any(1)  # 0 times what overflowed in another record is nan, and mixes nothing
        touched &= ~asked.to(touched.device)
        if bool(touched.any()):
            raise mixes(site, int(touched.nonzero()[0, 0]))


def mixes(site: GradientSite, record: int) -> UnfollowedError:
    """The error for a record whose gradient depends on the loss of another one; unless what is the same for all passed for records."""
    return UnfollowedError(
        f"the loss of a record depends on the other records of its batch: on record {record}.",
        source=f"the clipper's self-check: the gradient of the losses at {site.where}",
        remedy="look for a layer or a loss that mixes, sorts or shifts records; " + BATCH_STATISTICS,
        lasting=False,
        doubtful=True,
    )
