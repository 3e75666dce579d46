"""Self-check of forward passes: a record's output must not depend on the other records of its batch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.checks.first_batch import FirstBatch
from lethe.train.clipping.checks.order import Seen, among_others, fewer_in_another_order, layers_watched, require_order
from lethe.train.clipping.checks.replaced_batch import (
    Few,
    Given,
    careful_numbers,
    depends_on_others,
    embeddings_of_one_record,
    embeddings_replaced,
    extremes,
    opposed,
    require_same,
    require_seeds,
    some_of,
    with_copies,
    with_large_numbers,
    with_nothing,
)
from lethe.train.clipping.checks.surroundings import Unkept
from lethe.train.core.comparison import ALLOWED, ALLOWED_IN_SHAPE, FAILURES, chance, close, first_line, halves, sample
from lethe.train.model_state.outputs import RecordOutputs, finite_records, precision_of, shapes_of_a_record
from lethe.train.model_state.quiet import Quiet
from lethe.train.model_state.undisturbed import Rewind, undisturbed

ALIKE = "its records are all alike"
"""Why nothing was learned of a batch of whole numbers; another batch may tell."""

_ALONE = 2  # records that pass through the model alone
_FEW = 3  # records that are passed through the model right after the batch, which shows what it kept, and in other company
_LARGE = 32  # a batch of so many records is glanced at by halves
_RANDOM = "the model's output is random, or holds no tensor with the records first"
_NAN = "where others are NaN"
_FAR = "where others are very large numbers"
_COPIES = "where others are copies of itself or of another"
_FINITE = "where others are copies of itself or of another, or very large numbers"


class ForwardChecks:
    """Compares a model's outputs for records alone, and among replaced records, with those of the batch; the model is unchanged.

    Args:
        model: whose first argument has the records first.

    Attributes:
        outputs: tells those of records from others, by the last batch that was compared in all ways.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._tokens: frozenset[nn.Module] = frozenset()
        self._rewind: Rewind
        self._mode: Quiet
        self._seeds: frozenset[int] | None = None
        self.outputs = RecordOutputs()
        self._unkept = Unkept()

    @contextmanager
    def calls(self, given: Given) -> Generator[Rewind]:
        """Within: the checks may be made; nothing of them is left afterwards."""
        with undisturbed(self._model, (given.args, given.kwargs), skipped=given.tensors()) as rewind:
            self._rewind = rewind
            yield rewind

    def thorough(self, given: Given, first: FirstBatch | None = None) -> tuple[str | None, str | None]:
        """All comparisons, within `calls`: of the whole batch with either half of the records replaced, and of a few in all ways.

        Args:
            given: what the model was called with.
            first: asked as well, of the same few.
        Returns:
            Why a comparison of `first`, or another, could not be made; None if all were, and agreed.
        Raises:
            InputError: a record's output depends on the other records of its batch.
            HypothesisError: see FirstBatch.
        """
        memory = None if first is None else first.reason
        if not given.rows():
            return memory, "no argument of the model has the records first"
        self.outputs.begin()
        with Quiet() as mode:
            self._mode = mode
            try:
                with precision_of(self._model, given.precision) as precision, layers_watched(self._model) as seen:
                    batch = self._called(given, seen)
            except FAILURES as error:
                return memory, f"the model could not be called again: {first_line(error)}"
            self._seeds = self._mode.seeds()
            given = replace(given, precision=precision())
            drew, usable = self._rewind.drew(), finite_records(batch, given.records)
            reasons = [_RANDOM] if drew or not batch else []
            if not usable:
                reasons += ["no record's output is finite"] if batch else []
                return memory, "; ".join(reasons)
            few = self._asked(given, sorted(sample(usable, min(given.records, _FEW))), first)
            memory = None if first is None else first.reason
            try:
                reasons += self._compared(given, batch, usable, few, seen, drew=drew)
            except InputError:
                if self._repeats(given):
                    raise
                self._seeds = None
                reasons += [_RANDOM, *self._compared(given, None, usable, few, seen, drew=drew)]
        return memory, "; ".join(dict.fromkeys(reasons)) or None

    def _asked(self, given: Given, records: list[int], first: FirstBatch | None) -> Few:
        """A few records in a batch of their own.

        They come right after the batch: what a model keeps of it shows in them. And they stand in its order, so that what others are made
        of, from their end, begins with no record that the batch begins with.
        """
        some = given.taken(records)
        try:
            output, seeds = self._output(some), self._mode.seeds()
            if first is not None:
                first.check(some, given, output, self._rewind, self._mode)
        except FAILURES as error:
            return Few(records, some, frozenset(), [], f"the model does not accept a few of the records: {first_line(error)}")
        return Few(records, some, seeds, self.outputs(output, some.records), None)

    def _repeats(self, given: Given) -> bool:
        """Whether the model, as it was, gives the same outputs and seeds twice; asked only where a comparison disagrees."""
        self._rewind.model()
        (batch, seeds), (again, anew) = ((self._called(given), self._mode.seeds()) for _ in range(2))
        pairs = zip(batch, again, strict=True)
        return seeds == anew and all(bool(close(one, other, other, ALLOWED, given.precision).all()) for one, other in pairs)

    def _compared(self, given: Given, batch: list[Tensor] | None, usable: list[int], few: Few, seen: Seen, *, drew: bool) -> list[str]:
        """All comparisons with the outputs in the batch; without these, outputs are only asked to be finite.

        What one half of the whole batch does to the other is asked by NaN, and what that does to this one by copies and very large numbers.
        What one place of a batch does to all others is asked of a few records as well, if it is not of the whole batch.
        """
        first, second = halves(given.records, given.rows()[0].device)
        gone = first.tolist()
        require_seeds(few.seeds, self._seeds, "a few records by themselves")
        reasons = self._smaller(given, None if drew else batch, usable)
        order, places = among_others([record for record in usable if not gone[record]], first.nonzero()[:, 0].tolist())
        lost = torch.ones(max(1, len(order)), dtype=torch.bool, device=first.device)
        lost[places] = False
        reasons += self._among_few(few, lost, second, batch, drew=drew)
        moved: bool | None = None
        if batch is not None and not drew and few.reason is None:
            require_same(few.outputs, few.records, batch, given.precision, "a few records by themselves")
            moved = self._moved(given, batch, seen, order, places, lost) if places and self._replaceable(given) else None
        if moved is None:
            reasons += [reason for half in (first, second) for reason in self._replaced(given, batch, usable, half, _NAN)]
        if batch is None:
            return reasons
        # What a model does to large batches only, at outliers or at copies only, a few records do not show.
        kinds = (_FINITE,) if int(second.sum()) > 1 else (_FAR, _COPIES)
        if refused := [reason for kind in kinds for reason in self._replaced(given, batch, usable, second, kind)]:
            apart = (self._replaced(given, batch, usable, second, kind) for kind in (_FAR, _COPIES))
            reasons += [*chain.from_iterable(apart)] or refused
        if not drew and not (self._follow(given, batch, seen) if moved is None else moved):
            self._follow_few(given)
        return reasons

    def _among_few(self, few: Few, lost: Tensor, second: Tensor, batch: list[Tensor] | None, *, drew: bool) -> list[str]:
        """What only another model than this one would betray needs no more records than a few: a branch of NaN, or of outliers.

        Args:
            few: the records, and their outputs.
            lost, second: places of the whole batch that NaN, and very large numbers, stand in; another half of a few is asked by them.
            batch, drew: as of `_compared`.
        """
        if few.reason is not None:
            return [few.reason]
        if len(few.records) < 2:
            return []
        everyone, known = finite_records(few.outputs, len(few.records)), None if drew or batch is None else few.outputs
        reasons = self._replaced(few.given, known, everyone, opposed(lost, len(few.records)), _NAN, names=few.records)
        if batch is not None:
            reasons += self._replaced(few.given, few.outputs, everyone, opposed(second, len(few.records)), _FAR, names=few.records)
        return reasons

    def _moved(self, given: Given, batch: list[Tensor], seen: Seen, order: list[int], places: list[int], lost: Tensor) -> bool | None:
        """NaN in the place of one half of the records, of which one is left out, and the others among them in another order.

        Args:
            order, places: see `among_others`.
            lost: which places are not among `places`.
        Returns:
            As `_follow`; None where the model does not accept it.
        """
        other = given.taken(order).mapped(lambda entry: with_nothing(entry, lost))
        inside = embeddings_replaced(self._tokens, len(order), lambda output: with_nothing(output, lost))
        try:
            with inside, careful_numbers(self._model, given), layers_watched(self._model) as moved:
                outputs = self._called(other, moved)
        except FAILURES:
            return None
        if shapes_of_a_record(outputs) != shapes_of_a_record(batch):
            return None
        kept = [order[place] for place in places]
        require_same(outputs, kept, batch, given.precision, f"the record {_NAN}", places=places)
        return require_order(seen, moved, given.records, order, self._model, given.precision, asked=places)

    def _follow(self, given: Given, batch: list[Tensor], seen: Seen) -> bool:
        """Some of the records in another order: each layer's rows must follow what the layers were given of all of them.

        Returns:
            Whether they could be compared.
        """
        if given.records < 2:
            return True
        order = fewer_in_another_order(given.records)
        try:
            with layers_watched(self._model) as moved:
                outputs = self._called(given.taken(order), moved)
        except FAILURES:
            return True  # a record alone says as much
        compared = require_order(seen, moved, given.records, order, self._model, given.precision)
        require_same(outputs, order, batch, given.precision, "some records in another order")
        return compared

    def _follow_few(self, given: Given) -> None:
        """`_follow` where so few are cut or branch otherwise that it could not be compared: a few take the place of all."""
        some, batch = given.few(), list[Tensor]()
        with suppress(*FAILURES), layers_watched(self._model) as seen:
            batch = self._called(some, seen)
        self._follow(some, batch, seen)

    def _replaceable(self, given: Given) -> bool:
        """Whether there is anything among what the model is given that NaN, or a very large number, may stand for."""
        return bool(self._tokens) or any(entry.is_floating_point() for entry in given.rows())

    def glance(self, given: Given) -> None:
        """One comparison of those that `thorough` makes, at random, of half the records of a large batch.

        Raises:
            InputError: a record's output depends on the other records of its batch.
        """
        if not given.rows():
            return
        if given.records >= _LARGE:
            given = given.taken(sample(range(given.records), given.records // 2))
        rows = given.rows()
        replaced = halves(given.records, rows[0].device)[0]
        kinds = (_NAN, _FAR, _COPIES) if self._replaceable(given) else (_COPIES,)
        with self.calls(given), Quiet() as self._mode:
            try:
                with precision_of(self._model, given.precision) as seen:
                    batch = self._called(given)
            except FAILURES:
                return
            if usable := finite_records(batch, given.records):
                given = replace(given, precision=seen())
                self._replaced(given, batch, usable, replaced, chance.choice(kinds))

    def _output(self, given: Given) -> Any:
        """With gradients enabled, as in training: some models look where they are."""
        self._rewind()
        self._mode.begin()
        with torch.enable_grad():
            return given.called(self._model)

    def _called(self, given: Given, seen: Seen | None = None) -> list[Tensor]:
        """The outputs alone, of a pass of whose graph nothing is kept.

        What a model may make of that shows: the pass of a few records keeps all, for their gradients, and gives them the same outputs.

        Args:
            given: what the model is called with.
            seen: what the layers are given, see `layers_watched`.
        """
        return self._unkept(lambda: self.outputs(self._output(given), given.records), lambda: seen and seen.clear())

    def _smaller(self, given: Given, batch: list[Tensor] | None, usable: list[int]) -> list[str]:
        """Records alone."""
        some = extremes(given.rows(), usable)
        for record in dict.fromkeys([*some, *sample(usable, _ALONE - min(len(some), 1))]):
            try:
                with embeddings_of_one_record(self._model) as tokens:
                    single = self._called(given.taken([record]))
            except FAILURES as error:
                return [f"the model does not accept a single record: {first_line(error)}"]
            self._tokens = frozenset(tokens)
            require_seeds(self._mode.seeds(), self._seeds, "a record alone")
            if batch is None:
                continue
            if shapes_of_a_record(single) != shapes_of_a_record(batch):
                return ["the model's output for a single record has another shape"]
            if not all(
                bool(close(one, output[[record]], output, ALLOWED, given.precision).all())
                for one, output in zip(single, batch, strict=True)
            ):
                raise depends_on_others(record, "the record alone against the record in the batch")
        return []

    def _replaced(
        self,
        given: Given,
        batch: list[Tensor] | None,
        usable: list[int],
        replaced: Tensor,
        kind: str,
        *,
        names: list[int] | None = None,
    ) -> list[str]:
        """Some records replaced, the others' outputs compared with those in the batch; without these, only asked to be finite."""
        gone = replaced.tolist()
        kept = [record for record in usable if not gone[record]]
        if not kept:
            return []
        if kind in (_COPIES, _FINITE):
            copied = chance.choice(kept)
            other = given.mapped(lambda entry: with_copies(entry, replaced.to(entry.device), copied))
            if all(torch.equal(one, before) for one, before in zip(other.rows(), given.rows(), strict=True)):
                return [] if any(entry.is_floating_point() for entry in given.rows()) else [ALIKE]
            inside: Any = nullcontext()
            if kind == _FINITE:
                far = some_of(replaced)
                other = other.mapped(lambda entry: with_large_numbers(entry, far))
                inside = embeddings_replaced(self._tokens, given.records, lambda output: with_large_numbers(output, far))
        else:
            fill: Callable[[Tensor, Tensor], Tensor] = with_nothing if kind == _NAN else with_large_numbers
            if not self._replaceable(given):
                return []
            other = given.mapped(lambda entry: fill(entry, replaced))
            inside = embeddings_replaced(self._tokens, given.records, lambda output: fill(output, replaced))
        try:
            with inside, nullcontext() if kind == _COPIES else careful_numbers(self._model, given):
                outputs = self._called(other)
        except FAILURES as error:
            return [f"the model does not accept a batch {kind}: {first_line(error)}"]
        if batch is None:
            agree = [torch.isfinite(output).reshape(given.records, -1).all(1) for output in outputs] if kind == _NAN else []
        elif [output.shape for output in outputs] != [output.shape for output in batch]:
            return ["the shape of the model's output depends on what the records hold"]
        else:
            pairs = zip(outputs, batch, strict=True)
            agree = [close(one, output, output, ALLOWED_IN_SHAPE, given.precision, asked=kept) for one, output in pairs]
        agreed = torch.stack(agree).all(0).tolist() if agree else [True] * given.records
        if (record := next((record for record in kept if not agreed[record]), None)) is not None:
            raise depends_on_others(record if names is None else names[record], f"the record in its batch against the record {kind}")
        return []
