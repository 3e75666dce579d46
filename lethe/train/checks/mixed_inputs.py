"""Check of what a user's loop gives the model: rows that are mixtures of several records of the loader's, or another batch's."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.errors import InputError
from lethe.train.checks.scalings import Scalings
from lethe.train.core.comparison import chance, sample
from lethe.train.data.sources.padding import same

_FIRST = 3  # micro-batches that are all looked at
_ODDS = 16  # one in so many is looked at, besides powers of two
_COLUMNS = 2048  # numbers of a record that are compared, at most, where there are no more than half as many records
_LEAST = 16  # numbers in which a row must differ from its record, and agree with another
_DISTINCT = 8  # different ones among these: black corners of pictures agree, too
_SHARE = 1e-3  # of another record, that counts
_ALLOWED, _ALLOWED_IN_DOUBLE = 1e-4, 1e-9  # of what a sum of records leaves unexplained; of coarser numbers than float32 nothing is told

Place = tuple[int, int, int]
"""A call of the model in its micro-batch, a tensor that it is given, and one of the loader's."""


class _Records(NamedTuple):
    """Some numbers of each of the loader's records.

    Args:
        shape: of all of them, (B, ...).
        columns: which numbers of a record.
        rows: shape (B, columns).
    """

    shape: torch.Size
    columns: list[int]
    rows: Tensor


class LoopInputs:
    """Refuses rows that are weighted sums of records (mixup, centring), other records' (a permutation; one of the batch before that was
    kept), or pieces of them (cutmix); and columns that are scaled or shifted otherwise than in a batch before, as by a batch's own mean
    and deviation.

    A row may be made of its own record in any other way, in place too; and what mixes records in any other way is declared, not seen.

    Args:
        model: that the loop calls.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._batches, self._depth, self._calls = 1, 0, 0
        self._due = True  # whether the next micro-batch is looked at
        self._looks = False
        self._delivered: Sequence[Tensor] = ()
        self._whole: list[Tensor] = []
        self._kept: list[_Records | None] = []
        self._earlier: list[_Records | None] = []
        self._before: list[_Records | None] = []
        self._columns: dict[int, list[int]] = {}
        self._scalings: dict[Place, Scalings] = {}

    def keep(self, delivered: tuple[Tensor, ...], *, wanted: bool, needed: bool) -> tuple[Tensor, ...]:
        """The same, of which in some micro-batches some numbers are noted: the loop may write into what it is given.

        Args:
            delivered: of the loader, shapes (B, ...).
            wanted: False: nothing is looked at.
            needed: whether `written` is going to be asked, too; all numbers are copied then.
        """
        self._delivered, self._earlier, self._looks, noted = delivered, self._before, False, list[_Records | None]()
        self._before, self._kept = [], []
        if wanted and len(delivered[0]) > 1:
            self._looks, self._due = self._due, self._is_next_due()
            if self._looks or self._due:
                noted = [self._some_of(number, entry) for number, entry in enumerate(delivered)]
            self._kept, self._before = noted if self._looks else [], noted if self._due else []
        self._whole = [entry.clone() for entry in delivered] if needed else []
        return delivered

    def _some_of(self, number: int, records: Tensor) -> _Records | None:
        """Of the loader's tensor of that number, always the same numbers of a record; None: it has one a record, or no real ones."""
        if records.dim() < 2 or records.is_complex():
            return None
        flat = records.flatten(1)
        if number not in self._columns:
            self._columns[number] = sorted(sample(range(flat.shape[1]), max(_COLUMNS, 4 * len(flat))))
        columns = [column for column in self._columns[number] if column < flat.shape[1]]
        return _Records(records.shape, columns, flat[:, columns])

    def written(self, rows: Tensor) -> bool:
        """Whether the loop wrote into the present micro-batch.

        Args:
            rows: which of them are records.
        """
        return not all(same(now[rows], before[rows]) for now, before in zip(self._delivered, self._whole, strict=True))

    @contextmanager
    def watched(self) -> Generator[None]:
        """Within: the tensors that the model is given are compared with those of the loader, in some micro-batches.

        Raises:
            InputError: see the class.
        """
        self._depth = self._calls = 0
        kept, earlier = self._kept, self._earlier
        if not self._looks:
            yield
            return

        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._depth += 1
            if self._depth == 1:  # the self-check calls the model within the loop's call
                self._calls += 1
                given = [entry for entry in tree_flatten((args, kwargs))[0] if isinstance(entry, Tensor)]
                for one, entry in enumerate(given):
                    # The loader's own may be like one another: labels that repeat a prompt, and the tokens of another record.
                    own = [place for place, there in enumerate(self._delivered) if _where(there) == _where(entry)]
                    for other in own or range(len(kept)):
                        self._require_own(entry, kept[other], (self._calls, one, other))
                    for records, before in zip(kept, [] if own else earlier, strict=False):
                        _refuse_earlier(entry, records, before)

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
    def _require_own(self, given: Tensor, records: _Records | None, place: Place) -> None:
        if records is None or (rows := _as_delivered(given, records)) is None:
            return
        own = records.rows
        if torch.equal(rows, own):
            return
        if (found := _pieces(rows, own) or _sums(rows, own)) is not None:
            raise _mixed(f"a row that is made of records {found[0]} and {found[1]} of the loader's batch")
        if (allowed := _allowed(rows, own)) is not None and self._scalings.setdefault(place, Scalings(allowed)).differ(rows, own):
            raise _mixed("columns of the loader's batch that are scaled and shifted by other numbers than those of a batch before")


def _where(entry: Tensor) -> tuple[int, torch.Size]:
    return entry.data_ptr(), entry.shape


@torch.no_grad()
def _refuse_earlier(given: Tensor, records: _Records | None, earlier: _Records | None) -> None:
    """Refuse rows that hold, wherever they have not their own record's numbers, those of a record of the batch before."""
    if records is None or earlier is None or given.shape != records.shape or records.shape[1:] != earlier.shape[1:]:
        return
    rows = _as_delivered(given, records)
    if rows is not None and (found := _pieces(rows, records.rows, earlier.rows)) is not None:
        raise InputError(
            f"recording: the model is given record {found[1]} of the loader's batch before in place of record {found[0]} of this one.",
            source="what the loop does between the loader and the model: batches that are kept, replayed or fetched in advance",
            remedy="give the model each batch in its own step, once: a record may meet no steps but those that the design gives it.",
        )


def _mixed(what: str) -> InputError:
    return InputError(
        f"recording: the model is given {what}.",
        source="what the loop does between the loader and the model: mixup, cutmix, another order, a mean or a size of the batch",
        remedy="let each row be made of its own record, as by augmentation in dataset[i], and scale by public constants, or by a number "
        "drawn for each record: a mixture of records is no record, and the sum moves by more than C when one of them does.",
    )


def _as_delivered(given: Tensor, records: _Records) -> Tensor | None:
    """The same numbers of what the model is given, in the order in which the loader has them; None: that is made of something else."""
    if given.dim() < 2 or len(given) != len(records.rows) or given.device != records.rows.device:
        return None
    if given.shape != records.shape:  # pictures whose channels come last
        given = next((moved for ends in ((-1, 1), (1, -1)) if (moved := given.movedim(*ends)).shape == records.shape), given)
    return given.flatten(1)[:, records.columns] if given[0].numel() == records.shape[1:].numel() else None


def _allowed(rows: Tensor, own: Tensor) -> float | None:
    """What may be left unexplained: of rows that are made of whole numbers as much as of float32."""
    if rows.dtype not in (torch.float64, torch.float32):
        return None
    return _ALLOWED_IN_DOUBLE if rows.dtype == own.dtype == torch.float64 else _ALLOWED


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
    allowed = _allowed(rows, own)
    if allowed is None or own.shape[1] < 2 * len(own):
        return None
    rows, own = rows.double().cpu(), own.double().cpu()
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
