"""Check of all records at once: scaling a record's loss must scale its gradient rows, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.record_gradients import GradientSite, gradient_sites, gradients_at, mixes, require_apart, rows_of, usable_records
from lethe.train.core.comparison import ALLOWED_IN_SHAPE, halves, sample

_POWERS = range(-6, 7)
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
    weights = powers_of_two(len(losses), losses.device) * usable_records(losses, counted)
    scaled = gradients_at(sites, losses, weights, recording)
    require_scaled(sites, scaled, weights, losses, counted, recording, summed=summed)


def powers_of_two(records: int, device: torch.device | str) -> Tensor:
    """At random, of either sign, between 2^-6 and 2^6, no two alike of 26 records or fewer; shape (B,), float64."""
    drawn = [sign * 2.0**power for power in _POWERS for sign in (-1, 1)] * -(-records // (2 * len(_POWERS)))
    return torch.tensor(sample(drawn, records), dtype=torch.float64, device=device)


def require_scaled(
    sites: Sequence[GradientSite],
    scaled: Sequence[Tensor | None],
    weights: Tensor,
    losses: Tensor,
    counted: Tensor | None,
    recording: Recording,
    *,
    summed: bool,
) -> None:
    """What `check_scaled` asks, of gradients that are there already.

    Args:
        sites: where.
        scaled: the gradients of the weighted sum of the losses there.
        weights: v, shape (B,), powers of two; 0 where a record does not count, or has no finite loss.
        losses: of the records, shape (B,).
        counted: shape (B,); None: all of them.
        recording, summed: see `check_scaled`.
    Raises:
        InputError: records mix.
    """
    usable = usable_records(losses, counted)
    known = summed and all(site.place in recording.told for site in sites)
    known = known and bool(usable.all() if counted is None else (usable == counted).all())
    plain = [recording.told[site.place] for site in sites] if known else gradients_at(sites, losses, usable, recording)
    gaps = torch.zeros(len(losses), dtype=torch.float64, device=losses.device)
    for site, one, other in zip(sites, plain, scaled, strict=True):
        if (rows := rows_of(site, one, len(losses))) is not None and (told := rows_of(site, other, len(losses))) is not None:
            gaps = torch.maximum(gaps, _gaps(rows, told, weights).to(gaps))
    suspects = (gaps > 0).nonzero()[:, 0]
    for record in suspects[gaps[suspects].argsort(descending=True)][:_SUSPECTS].tolist():
        _look_closely(sites, losses, usable, weights, scaled, record, recording)


def _gaps(rows: Tensor, told: Tensor, weights: Tensor) -> Tensor:
    """How far each record's rows are from $v_i$ times what they were, relative to the largest of its numbers."""
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
