"""The clipped gradients of a batch whose forward pass can be asked for: per layer, or record by record where that cannot be followed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from lethe.errors import HypothesisError, InputError, LetheError
from lethe.train.clipping.engine import Clipper
from lethe.train.clipping.unfollowed import PER_LAYER, UnfollowedError
from lethe.train.clipping.units import Units
from lethe.train.core.comparison import (
    ALLOWED,
    ALLOWED_IN_SHAPE,
    BATCH_STATISTICS,
    FAILURES,
    arithmetic,
    close,
    coarser,
    first_line,
    sample,
)
from lethe.train.model_state.outputs import precision_of
from lethe.train.model_state.quiet import Quiet
from lethe.train.model_state.undisturbed import Rewind, undisturbed

Forward = Callable[[slice], Any]
Losses = Callable[[Any, slice], Tensor]

_COMPARED = 3  # records whose loss alone is compared with that in the batch


def add_batch(
    clipper: Clipper, forward: Forward, losses: Losses, records: int, counted: Tensor | None = None, units: Units | None = None
) -> Tensor:
    """Add the clipped gradients of a batch to a clipper's sums, as the engine can follow the model, or as each record alone tells.

    Args:
        clipper: of the model.
        forward: (which records) -> the model's outputs; called within a recording, with all records or with one.
        losses: (outputs, which records) -> one loss a record.
        records: B.
        counted: shape (B,), bool; False for padding that is no record. None: all are.
        units: the records that are clipped as one; None: each by itself.
    Returns:
        The losses, detached, shape (B,); 0 for padding of a batch that was computed record by record.
    Raises:
        InputError, HypothesisError: as Clipper.recording and Clipper.backward.
    """
    if clipper.way != PER_LAYER:
        return _each(clipper, forward, losses, records, counted, units)
    try:
        with clipper.recording():
            outputs = forward(slice(None))
        values = losses(outputs, slice(None))
        clipper.backward(values, counted, units)
        return values.detach()
    except FAILURES as error:
        reason = _unfollowed(clipper, forward, losses, error)
    outputs = values = None  # of as many records as there are: let go before others are computed
    compared = not clipper.verifies or _refuse_mixed(clipper, forward, losses, records)
    if reason.doubtful and not compared:
        raise reason
    with clipper.one_by_one(reason):
        return _each(clipper, forward, losses, records, counted, units)


def _unfollowed(clipper: Clipper, forward: Forward, losses: Losses, error: Exception) -> UnfollowedError:
    """What was raised, if it says that records cannot be told apart; or that the model fails where it is recorded, and only there.

    Some models do not bear what stands in for their parameters, or layers whose results lie in memory in another order.

    Raises:
        Exception: what was raised, if it is nothing of the kind.
    """
    if isinstance(error, UnfollowedError):
        return error
    if isinstance(error, LetheError | torch.OutOfMemoryError):
        raise error
    with undisturbed(clipper.model):
        try:
            with torch.no_grad():
                losses(forward(slice(0, 1)), slice(0, 1))
        except FAILURES:
            raise error from None
        try:
            with clipper.recording():
                outputs = forward(slice(None))
            losses(outputs, slice(None))
        except type(error):
            pass
        else:
            raise error  # it came and went: memory that was short, a file that was not there
    return UnfollowedError(
        f"the model does not compute while its layers are recorded: {first_line(error)}", source="the model's forward pass"
    )


def _each(clipper: Clipper, forward: Forward, losses: Losses, records: int, counted: Tensor | None, units: Units | None) -> Tensor:
    """Each record passes through the model alone; those of a unit are put together before the clip, by the mean of their losses."""
    if units is not None and counted is not None:  # a row that is no record would count among its unit's
        raise InputError("counted: given together with units.", remedy="leave out the rows that are no records.")
    told: list[Tensor | None] = [None] * records
    own = [record for record in range(records) if counted is None or bool(counted[record])]
    clipper.batches_alone += 1
    due = clipper.verifies and len(own) > 1 and clipper.batches_alone & (clipper.batches_alone - 1) == 0
    with clipper.all_or_nothing(), _forgetful(clipper, lambda: losses(forward(_row(own[0])), _row(own[0]))) if due else nullcontext():
        for rows in [[record] for record in own] if units is None else units.rows():
            with clipper.recording():
                outputs = [forward(_row(row)) for row in rows]
            values = [losses(output, _row(row)) for output, row in zip(outputs, rows, strict=True)]
            clipper.backward(values[0] if len(rows) == 1 else torch.cat(values).mean(0, keepdim=True))
            for row, value in zip(rows, values, strict=True):
                told[row] = value.detach()
    known = next((value for value in told if value is not None), torch.zeros(1))
    return torch.cat([torch.zeros_like(known) if value is None else value for value in told]) if told else known[:0]


def _row(record: int) -> slice:
    return slice(record, record + 1)


@contextmanager
def _forgetful(clipper: Clipper, asked: Callable[[], Tensor]) -> Generator[None]:
    """Within: other records are computed; a record's loss must afterwards be what it was, with the same random numbers.

    Raises:
        HypothesisError: the model or the loss keeps what it saw.
    """
    device = next(clipper.model.parameters()).device
    rewind = Rewind([device.index or 0] if device.type == "cuda" else [])

    def told() -> Tensor | None:
        with torch.no_grad(), undisturbed(clipper.model):
            rewind()
            try:
                return asked().detach().clone()
            except FAILURES:
                return None  # it takes none without gradients

    before = told()
    yield
    after = told()
    if before is None or after is None:
        return
    precision = coarser(arithmetic(before.device), before.dtype)
    if not bool(close(after, before, before, ALLOWED_IN_SHAPE, precision).all()):
        raise HypothesisError(
            "a record's loss is another one after other records were computed: the model or the loss keeps what it saw, of which nothing "
            "is clipped or noised.",
            source="the check of records that are computed one by one: the first of a batch, before and after all of them",
            remedy="take out what is kept of one record for the next: a hidden state, a memory, a running mean.",
        )


def _refuse_mixed(clipper: Clipper, forward: Forward, losses: Losses, records: int) -> bool:
    """Whether losses could be compared; refuse a model or a loss that gives a record alone another loss than in its batch.

    Record by record it would be trained on batches of one, which no record's bound minds; but what normalises a batch, or contrasts its
    records, is then no longer what it was written for.
    """
    if records < 2:
        return False
    compared = _compared_alone(clipper, forward, losses, records, gradients=False)
    if compared is None:  # it takes no batch without gradients, as where the model takes a step of its own within
        compared = _compared_alone(clipper, forward, losses, records, gradients=True)
    return bool(compared)


def _compared_alone(clipper: Clipper, forward: Forward, losses: Losses, records: int, *, gradients: bool) -> bool | None:
    """Whether some losses alone are those in the batch; False: they are random. None: they could not be computed.

    Raises:
        InputError: they are others.
    """
    device = next(clipper.model.parameters()).device
    with (
        torch.set_grad_enabled(gradients),
        undisturbed(clipper.model) as rewind,
        Quiet() as mode,
        precision_of(clipper.model, arithmetic(device)) as coarsest,
    ):
        try:
            rewind()
            batch = losses(forward(slice(None)), slice(None)).detach()
            chosen = sample(batch.isfinite().nonzero()[:, 0].tolist(), _COMPARED)
            alone: list[Tensor] = []
            for record in chosen:
                row = slice(record, record + 1)
                rewind()
                mode.begin()
                alone.append(losses(forward(row), row).detach())
        except FAILURES as error:
            if isinstance(error, InputError) and not isinstance(error, UnfollowedError):
                raise
            return None
        if rewind.drew() or not alone:
            return False
    precision = coarser(coarsest(), batch.dtype)
    same = close(torch.cat(alone), batch[chosen], batch, ALLOWED, precision)
    if not bool(same.all()):
        raise InputError(
            f"the loss of record {chosen[int((~same).nonzero()[0, 0])]} in its batch is another than that of the record alone.",
            source="the comparison of a batch with its records alone, before these are trained one by one",
            remedy="leave out what is computed of a whole batch, such as a load-balancing loss of experts or a contrast between records; "
            + BATCH_STATISTICS,
        )
    return True
