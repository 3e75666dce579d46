"""Check of all records at once: scaling a record's loss must scale its gradient rows, and no others."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.record_gradients import GradientSite, gradient_sites, gradients_at, mixes, require_apart, rows_of, usable_records
from lethe.train.core.comparison import ALLOWED_IN_SHAPE, halves, sample

_POWERS = range(-6, 7)
_AT_ONCE = 2**18  # numbers that are compared at a time, in memory that is not fresh from the operating system for each layer
_SUSPECTS = 3  # records that are looked at closely where rows are not weighed alike


def check_scaled(losses: Tensor, counted: Tensor | None, recording: Recording, *, summed: bool = False) -> None:
    r"""Refuse losses where one record's touches another's rows, however many records there are.

    The gradient of $\sum_i v_i \ell_i$ at record i's row is $v_i$ times that of $\sum_i \ell_i$, if the row is touched by $\ell_i$ alone.
    With $v_i = \pm 2^k$ at random this costs no rounding. Where rows differ all the same, from rounding that is not repeatable or from a
    backward pass that is not linear, the record is asked for by itself.

    Two records that mix are missed only where they have the same $v$: never of 26 records or fewer, of many in one batch of 26.

    Args:
        losses: shape (B,).
        counted: shape (B,), bool; None: all.
        recording: of their forward pass.
        summed: whether the recording knows the gradients of the sum of the losses that count; else they are computed here.
    Raises:
        InputError: records mix.
    """
    sites = list(gradient_sites(recording))
    if len(losses) < 2 or not sites:
        return
    usable = usable_records(losses, counted)
    weights = powers_of_two(len(losses), losses.device) * usable
    scaled = gradients_at(sites, losses, weights, recording)
    known = summed and knows(sites, losses, counted, recording)
    plain = [recording.told[site.place] for site in sites] if known else gradients_at(sites, losses, usable, recording)
    gaps = torch.zeros(len(losses), dtype=torch.float64, device=losses.device)
    for site, one, other in zip(sites, plain, scaled, strict=True):
        gaps = torch.maximum(gaps, _gaps_at(site, one, other, weights).to(gaps))
    suspects = (gaps > 0).nonzero()[:, 0]
    for record in suspects[gaps[suspects].argsort(descending=True)][:_SUSPECTS].tolist():
        _look_closely(sites, losses, usable, weights, scaled, record, recording)


def knows(sites: Sequence[GradientSite], losses: Tensor, counted: Tensor | None, recording: Recording) -> bool:
    """Whether the gradients of the sum of all usable losses are known, from the pass of those that count.

    Args:
        sites: where.
        losses: shape (B,).
        counted: shape (B,), bool; None: all.
        recording: that was told the gradients.
    """
    usable = usable_records(losses, counted)
    return all(site.place in recording.told for site in sites) and bool(usable.all() if counted is None else (usable == counted).all())


def powers_of_two(records: int, device: torch.device | str) -> Tensor:
    """At random, of either sign, between 2^-6 and 2^6, no two alike of 26 records or fewer; shape (B,), float64."""
    drawn = [sign * 2.0**power for power in _POWERS for sign in (-1, 1)] * -(-records // (2 * len(_POWERS)))
    return torch.tensor(sample(drawn, records), dtype=torch.float64, device=device)


class ScaledInTurn:
    """What `check_scaled` asks, of gradients as a backward pass of other losses comes by: none of them is held.

    Args:
        sites: where.
        weights: v of the losses that the pass is of, shape (B,): powers of two, or 0.
        recording: that knows the gradients of the sum of the losses, see `knows`.
    """

    def __init__(self, sites: Sequence[GradientSite], weights: Tensor, recording: Recording) -> None:
        self._weights, self._recording = weights, recording
        self._sites = [site for site in sites if recording.told[site.place] is not None]
        # What devices' own threads add to at once.
        self._gaps, self._seen, self._tells = list[Tensor](), set[GradientSite](), True

    @property
    def agrees(self) -> bool:
        """Whether all rows were scaled as their records' losses; else `check_scaled` must be asked, as where small numbers vanish."""
        return self._tells and self._seen.issuperset(self._sites) and not any(bool((gaps > 0).any()) for gaps in self._gaps)

    @property
    def leaves(self) -> list[Tensor]:
        """The sites that are no results of an operation: their gradients are for the caller to ask for, and to hand to `note`."""
        return [site.place for site in self._sites if isinstance(site.place, Tensor)]

    @contextmanager
    def watched(self) -> Generator[None]:
        """Within: the backward pass."""
        places: dict[Any, list[GradientSite]] = {}
        for site in self._sites:
            if not isinstance(site.place, Tensor):
                places.setdefault(site.place.node, []).append(site)
        handles = [node.register_prehook(partial(self._arrived, here)) for node, here in places.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def note(self, gradients: Sequence[Tensor | None]) -> None:
        """The gradients of `leaves`."""
        for site, gradient in zip([site for site in self._sites if isinstance(site.place, Tensor)], gradients, strict=True):
            self._note(site, gradient)

    def _arrived(self, sites: Sequence[GradientSite], gradients: tuple[Tensor | None, ...]) -> None:
        for site in sites:
            self._note(site, gradients[site.place.output_nr])

    @torch.no_grad()
    def _note(self, site: GradientSite, gradient: Tensor | None) -> None:
        if gradient is not None and gradient.dtype is torch.float16:
            self._tells = False
        self._gaps.append(_gaps_at(site, self._recording.told[site.place], gradient, self._weights))
        self._seen.add(site)


def _gaps_at(site: GradientSite, plain: Tensor | None, scaled: Tensor | None, weights: Tensor) -> Tensor:
    rows, told = rows_of(site, plain, len(weights)), rows_of(site, scaled, len(weights))
    return torch.zeros_like(weights) if rows is None or told is None else _gaps(rows, told, weights)


def _gaps(rows: Tensor, told: Tensor, weights: Tensor) -> Tensor:
    """How far each record's rows are from $v_i$ times what they were, relative to the largest of its numbers."""
    size = max(1, _AT_ONCE // max(1, rows.shape[1]))
    return torch.cat([_gaps_of(*some) for some in zip(rows.split(size), told.split(size), weights.split(size), strict=True)])


def _gaps_of(rows: Tensor, told: Tensor, weights: Tensor) -> Tensor:
    factors = weights.to(rows).unsqueeze(1)
    expected = rows * factors
    if torch.equal(expected, told):
        return torch.zeros(len(rows), device=rows.device)
    tiny = torch.finfo(rows.dtype).smallest_normal * 2.0 ** max(_POWERS)
    gap = (told - expected).abs().amax(1)
    size = expected.abs().amax(1)
    relative = torch.where(gap <= tiny, 0.0, gap / size)
    known = torch.isfinite(rows).all(1) & (weights != 0).to(rows.device)
    return torch.where(known, relative.nan_to_num(nan=torch.inf), 0.0)


def _look_closely(
    sites: Sequence[GradientSite],
    losses: Tensor,
    usable: Tensor,
    weights: Tensor,
    scaled: Sequence[Tensor | None],
    record: int,
    recording: Recording,
) -> None:
    """Require that the others' losses do not touch the record's rows at all, and that its own gives them as in company."""
    alone = torch.zeros_like(usable)
    alone[record] = True
    others = usable & ~alone
    require_apart(sites, gradients_at(sites, losses, others, recording), ~alone)
    own = gradients_at(sites, losses, weights * alone, recording)
    for site, one, other in zip(sites, own, scaled, strict=True):
        by_itself, among_others = rows_of(site, one, len(losses)), rows_of(site, other, len(losses))
        if by_itself is None or among_others is None:
            continue
        gap, size = (among_others[record] - by_itself[record]).abs().max(), by_itself[record].abs().max()
        tiny = torch.finfo(size.dtype).smallest_normal
        if bool(torch.isfinite(by_itself[record]).all()) and not bool(gap <= ALLOWED_IN_SHAPE[size.dtype] * size + tiny):
            raise mixes(site, record)


def check_half(losses: Tensor, counted: Tensor | None, recording: Recording) -> None:
    """Refuse losses where a random half of the records reaches a row of the other half: the cheapest check, without tolerance.

    Args:
        losses: shape (B,), before the backward pass.
        counted: which records count, shape (B,); None: all.
        recording: of the forward pass.
    Raises:
        InputError: records mix.
    """
    sites = list(gradient_sites(recording))
    if len(losses) < 2 or not sites:
        return
    asked = halves(len(losses), losses.device)[0]
    require_apart(sites, gradients_at(sites, losses, asked & usable_records(losses, counted), recording), asked)
