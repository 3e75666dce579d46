"""Check of what a user's loop gives the model: rows that are mixtures of several records of the loader's, or another batch's."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.errors import InputError
from lethe.train.core.comparison import chance, sample

_FIRST = 3  # micro-batches that are all looked at
_ODDS = 16  # one in so many is looked at, besides powers of two
_COLUMNS = 2048  # numbers of a record that are compared, at most, where there are no more than half as many records
_LEAST = 16  # numbers in which a row must differ from its record, and agree with another
_DISTINCT = 8  # different ones among these: black corners of pictures agree, too
_ALLOWED = {torch.float64: 1e-9, torch.float32: 1e-4}  # of what a sum of records leaves unexplained; of coarser numbers nothing is told
_SHARE = 1e-3  # of another record, that counts
_CHANGED = 1e-3  # of a scale or a shift, from batch to batch


class LoopInputs:
    """Refuses rows that are weighted sums of records (mixup, centring), other records' (a permutation; one of the batch before that was
    kept), or pieces of them (cutmix); and columns that are scaled or shifted otherwise than in the batch before, as by a batch's own mean
    and deviation.

    A row may be made of its own record in any other way; and what mixes records in any other way is declared, not seen.

    Args:
        model: that the loop calls.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._batches, self._depth = 1, 0
        self._due = True  # whether the next micro-batch is looked at
        self._before: Sequence[Tensor] = ()
        self._columns: dict[tuple[int, int], list[int]] = {}
        self._affine: dict[tuple[int, int], Tensor] = {}

    @contextmanager
    def watched(self, delivered: Sequence[Tensor], wanted: bool) -> Generator[None]:
        """Within: the tensors that the model is given are compared with those of the loader, in some micro-batches.

        Args:
            delivered: of the loader, shapes (B, ...).
            wanted: False: nothing is looked at.
        Raises:
            InputError: see the class.
        """
        self._depth = 0
        due, earlier, self._before = wanted and len(delivered[0]) > 1, self._before, ()
        if due:
            due, self._due = self._due, self._is_next_due()
            self._before = delivered if self._due else ()  # held for as long as it takes
        if not due:
            yield
            return

        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._depth += 1
            if self._depth == 1:  # the self-check calls the model within the loop's call
                own = {(entry.data_ptr(), entry.shape) for entry in delivered}
                given = (entry for entry in tree_flatten((args, kwargs))[0] if isinstance(entry, Tensor))
                # The loader's own are what they are, and may be alike: labels that repeat a prompt, and the tokens of another record.
                tensors = [entry for entry in given if (entry.data_ptr(), entry.shape) not in own]
                for place in [(one, other) for one in range(len(tensors)) for other in range(len(delivered))]:
                    self._require_own(tensors[place[0]], delivered[place[1]], place)
                for one, there in itertools.product(tensors, zip(delivered, earlier, strict=False)):
                    _refuse_earlier(one, *there)

        def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._depth -= 1

        before = self._model.register_forward_pre_hook(enter, prepend=True, with_kwargs=True)
        after = self._model.register_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _is_next_due(self) -> bool:
        self._batches += 1
        return self._batches <= _FIRST or self._batches & (self._batches - 1) == 0 or chance.randrange(_ODDS) == 0

    @torch.no_grad()
    def _require_own(self, given: Tensor, records: Tensor, place: tuple[int, int]) -> None:
        if records.shape != given.shape or records.device != given.device or records.dim() < 2:
            return
        rows, own = given.flatten(1), records.flatten(1)
        known = self._columns.setdefault(place, sorted(sample(range(own.shape[1]), max(_COLUMNS, 4 * len(own)))))
        columns = [column for column in known if column < own.shape[1]]
        rows, own = rows[:, columns], own[:, columns]
        if (found := _pieces(rows, own) or _sums(rows, own)) is not None:
            raise _mixed(f"a row that is made of records {found[0]} and {found[1]} of the loader's batch")
        affine, before = _affine(rows, own), self._affine.get(place)
        if affine is None:
            return
        self._affine[place] = affine
        if before is not None and before.shape == affine.shape:
            both = (before.isfinite() & affine.isfinite()).all(0)
            if not torch.allclose(affine[:, both], before[:, both], rtol=_CHANGED, atol=_CHANGED * float(before[:, both].abs().max())):
                raise _mixed("columns of the loader's batch that are scaled and shifted by other numbers than those of the batch before")


@torch.no_grad()
def _refuse_earlier(given: Tensor, records: Tensor, earlier: Tensor) -> None:
    """Refuse rows that hold, wherever they have not their own record's numbers, those of a record of the batch before."""
    if not (records.shape == given.shape and records.shape[1:] == earlier.shape[1:]) or records.device != given.device or records.dim() < 2:
        return
    if (found := _pieces(given.flatten(1), records.flatten(1), earlier.flatten(1))) is not None:
        raise InputError(
            f"recording: the model is given record {found[1]} of the loader's batch before in place of record {found[0]} of this one.",
            source="what the loop does between the loader and the model: batches that are kept, replayed or fetched in advance",
            remedy="give the model each batch in its own step, once: a record may meet no steps but those that the design gives it.",
        )


def _mixed(what: str) -> InputError:
    return InputError(
        f"recording: the model is given {what}.",
        source="what the loop does between the loader and the model: mixup, cutmix, another order, a mean or a size of the batch",
        remedy="let each row be made of its own record, as by augmentation in dataset[i], and scale by public constants: a mixture of "
        "records is no record, and the sum moves by more than C when one of them does.",
    )


def _affine(rows: Tensor, own: Tensor) -> Tensor | None:
    """Scale and shift of each column, shape (2, columns), nan where it is the same in all records; None: the rows are no such thing."""
    if rows.dtype not in _ALLOWED or own.dtype != rows.dtype:
        return None
    allowed, (rows, own) = _ALLOWED[rows.dtype], (rows.double(), own.double())
    rows, own = rows[(there := own.abs().amax(1) > 0)], own[there]
    if len(own) < 3 or not bool(torch.isfinite(rows).all() & torch.isfinite(own).all()):
        return None
    means, told = own.mean(0), rows.mean(0)
    spread = (own - means).square().sum(0)
    varied = spread > (allowed * own.abs().amax(0)).square() * len(own)
    scales = torch.where(varied, ((own - means) * (rows - told)).sum(0) / spread, torch.nan)
    fits = torch.where(varied, (told + scales * (own - means) - rows).abs().amax(0) <= allowed * rows.abs().amax(0), True)
    return torch.stack([scales, told - scales * means]) if bool(fits.all()) and bool(varied.any()) else None


def _pieces(rows: Tensor, own: Tensor, others: Tensor | None = None) -> tuple[int, int] | None:
    """A record whose row has another record's numbers wherever it has not its own; the other is one of the same batch, or of `others`."""
    differs = rows != own
    for record in (differs.sum(1) >= _LEAST).nonzero()[:, 0].tolist():
        there = differs[record]
        same = ((own if others is None else others)[:, there] == rows[record, there]).all(1)
        if others is None:
            same[record] = False
        if bool(same.any()) and len(rows[record, there].unique()) >= _DISTINCT:
            return record, int(same.nonzero()[0, 0])
    return None


def _sums(rows: Tensor, own: Tensor) -> tuple[int, int] | None:
    """A record whose row is a weighted sum of records, another one's among them, and nothing that its own makes when scaled and shifted."""
    if rows.dtype not in _ALLOWED or own.dtype != rows.dtype or own.shape[1] < 2 * len(own):
        return None
    allowed, (rows, own) = _ALLOWED[rows.dtype], (rows.double().cpu(), own.double().cpu())
    own, rows = own[(there := own.abs().amax(1) > 0)], rows[there]  # without padding
    places = there.nonzero()[:, 0].tolist()
    if len(own) < 2 or not bool(torch.isfinite(rows).all() & torch.isfinite(own).all()):
        return None
    sizes = torch.linalg.svdvals(own)
    if float(sizes[-1]) <= 10 * allowed * float(sizes[0]):
        return None  # records are sums of one another
    weights = torch.linalg.lstsq(own.T, rows.T).solution.T
    unexplained = (weights @ own - rows).norm(dim=1) / rows.norm(dim=1).clamp(min=1e-300)
    for row in (unexplained <= allowed).nonzero()[:, 0].tolist():
        others = weights[row].abs()
        others[row] = 0.0
        if float(others.max()) <= _SHARE * float(weights[row].abs().max()):
            continue
        alone = torch.stack([own[row], torch.ones_like(own[row])], dim=1)
        fit = alone @ torch.linalg.lstsq(alone, rows[row][:, None]).solution
        if float((fit[:, 0] - rows[row]).norm()) > 10 * allowed * float(rows[row].norm()):
            return places[row], places[int(others.argmax())]
    return None
