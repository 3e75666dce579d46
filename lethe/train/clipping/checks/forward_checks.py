"""Self-check of forward passes: a record's output must not depend on the other records of its batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.errors import InputError
from lethe.train.clipping.checks.first_batch import FirstBatch
from lethe.train.clipping.checks.order import Seen, fewer_in_another_order, layers_watched, require_order
from lethe.train.clipping.checks.replaced_batch import (
    Given,
    careful_numbers,
    embeddings_of_one_record,
    embeddings_replaced,
    extremes,
    few_of,
    has_rows,
    opposed,
    some_of,
    with_copies,
    with_large_numbers,
    with_nothing,
)
from lethe.train.core.comparison import (
    ALLOWED,
    ALLOWED_IN_SHAPE,
    BATCH_STATISTICS,
    FAILURES,
    chance,
    close,
    coarser,
    first_line,
    halves,
    sample,
)
from lethe.train.model_state.quiet import Quiet
from lethe.train.model_state.undisturbed import Rewind, undisturbed

ALIKE = "its records are all alike"
"""Why nothing was learned of a batch of whole numbers; another batch may tell."""

_ALONE = 2  # records that pass through the model alone
_LARGE = 32  # a batch of so many records is glanced at by halves
_RANDOM = "the model's output is random, or holds no tensor with the records first"
_NAN = "where others are NaN"
_FAR = "where others are very large numbers"
_COPIES = "where others are copies of itself or of another"
_FINITE = "where others are copies of itself or of another, or very large numbers"


@dataclass(frozen=True, slots=True, eq=False)
class _Few:
    """A few records' numbers in the batch, the call of them alone, their outputs, and why there are none."""

    records: list[int]
    given: Given
    outputs: list[Tensor]
    reason: str | None


class ForwardChecks:
    """Compares a model's outputs for records alone, and among replaced records, with those of the batch; the model is unchanged.

    Args:
        model: whose first argument has the records first.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._tokens: frozenset[nn.Module] = frozenset()
        self._rewind: Rewind
        self._mode: Quiet

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
        with Quiet() as mode:
            self._mode = mode
            try:
                with precision_of(self._model, given.precision) as precision, layers_watched(self._model) as seen:
                    batch = self._called(given)
            except FAILURES as error:
                return memory, f"the model could not be called again: {first_line(error)}"
            given = replace(given, precision=precision())
            drew, usable = self._rewind.drew(), _finite(batch, given.records)
            reasons = [_RANDOM] if drew or not batch else []
            if not usable:
                reasons += ["no record's output is finite"] if batch else []
                return memory, "; ".join(reasons)
            few = self._asked(given, sorted(sample(usable, few_of(given.records))), first)
            memory = None if first is None else first.reason
            try:
                reasons += self._compared(given, batch, usable, few, seen, drew=drew)
            except InputError:
                if self._repeats(given):
                    raise
                reasons += [_RANDOM, *self._compared(given, None, usable, few, seen, drew=drew)]
        return memory, "; ".join(dict.fromkeys(reasons)) or None

    def _asked(self, given: Given, records: list[int], first: FirstBatch | None) -> _Few:
        """A few records in a batch of their own, with gradients enabled as in training, which costs memory for these few only.

        They come right after the batch: what a model keeps of it shows in them. And they stand in its order, so that what others are made
        of, from their end, begins with no record that the batch begins with.
        """
        some = given.taken(records)
        try:
            output = self._output(some, gradients=True)
            if first is not None:
                first.check(some, given, output, self._rewind, self._mode)
        except FAILURES as error:
            return _Few(records, some, [], f"the model does not accept a few of the records: {first_line(error)}")
        return _Few(records, some, _outputs(output, some.records), None)

    def _repeats(self, given: Given) -> bool:
        """Whether the model, as it was, gives the same outputs twice; asked only where a comparison disagrees."""
        self._rewind.model()
        batch, again = (self._called(given) for _ in range(2))
        return all(bool(close(one, other, other, ALLOWED, given.precision).all()) for one, other in zip(batch, again, strict=True))

    def _compared(self, given: Given, batch: list[Tensor] | None, usable: list[int], few: _Few, seen: Seen, *, drew: bool) -> list[str]:
        """All comparisons with the outputs in the batch; without these, outputs are only asked to be finite."""
        first, second = halves(given.records, given.rows()[0].device)
        reasons = self._smaller(given, None if drew else batch, usable) + self._among_few(few, first, batch, drew=drew)
        unshown = [reason for half in (first, second) for reason in self._with_others_replaced(given, batch, usable, half, _NAN)]
        reasons += unshown
        if batch is None:
            return reasons
        # What a model does to large batches only, at outliers or at copies only, a few records do not show.
        if refused := self._with_others_replaced(given, batch, usable, second, _FINITE):
            apart = (self._with_others_replaced(given, batch, usable, second, kind) for kind in (_FAR, _COPIES))
            reasons += [*chain.from_iterable(apart)] or refused
        if not unshown and all(entry.is_floating_point() for entry in given.rows()) and few.reason is None and len(few.records) > 1:
            everyone, replaced = _finite(few.outputs, len(few.records)), opposed(first, len(few.records))
            reasons += self._with_others_replaced(few.given, few.outputs, everyone, replaced, _COPIES, gradients=True, names=few.records)
        if not drew:
            self._order(given, seen)
        return reasons

    def _among_few(self, few: _Few, first: Tensor, batch: list[Tensor] | None, *, drew: bool) -> list[str]:
        """What only another model than this one would betray needs no more records than a few: a branch of NaN, or of outliers."""
        if few.reason is not None:
            return [few.reason]
        if len(few.records) < 2:
            return []
        everyone = _finite(few.outputs, len(few.records))
        replaced = opposed(first, len(few.records))
        known = None if drew or batch is None else few.outputs
        reasons = self._with_others_replaced(few.given, known, everyone, replaced, _NAN, gradients=True, names=few.records)
        if batch is not None:
            reasons += self._with_others_replaced(few.given, few.outputs, everyone, ~replaced, _FAR, gradients=True, names=few.records)
        return reasons

    def _order(self, given: Given, seen: Seen) -> None:
        """Some of the records in another order: each layer's rows must follow what the layers were given of all of them.

        Where that cannot be compared, since so few are cut or branch otherwise, a few take the place of all.
        """
        if self._follow(given, seen):
            return
        some = given.few()
        with suppress(*FAILURES), layers_watched(self._model) as seen:
            self._called(some)
        self._follow(some, seen)

    def _follow(self, given: Given, seen: Seen) -> bool:
        """Whether they could be compared."""
        if given.records < 2:
            return True
        order = fewer_in_another_order(given.records)
        try:
            with layers_watched(self._model) as moved:
                self._called(given.taken(order))
        except FAILURES:
            return True  # a record alone says as much
        names = {module: path for path, module in self._model.named_modules()}
        return require_order(seen, moved, given.records, order, names, given.precision)

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
        kinds = (_NAN, _FAR, _COPIES) if self._tokens or any(entry.is_floating_point() for entry in rows) else (_COPIES,)
        with self.calls(given), Quiet() as self._mode:
            try:
                with precision_of(self._model, given.precision) as seen:
                    batch = self._called(given)
            except FAILURES:
                return
            if usable := _finite(batch, given.records):
                given = replace(given, precision=seen())
                self._with_others_replaced(given, batch, usable, replaced, chance.choice(kinds))

    def _output(self, given: Given, *, gradients: bool) -> Any:
        self._rewind()
        self._mode.begin()
        with torch.set_grad_enabled(gradients):
            return given.called(self._model)

    def _called(self, given: Given, *, gradients: bool = False) -> list[Tensor]:
        return _outputs(self._output(given, gradients=gradients), given.records)

    def _smaller(self, given: Given, batch: list[Tensor] | None, usable: list[int]) -> list[str]:
        """Records alone."""
        for record in dict.fromkeys([*extremes(given.rows(), usable), *sample(usable, _ALONE)]):
            try:
                with embeddings_of_one_record(self._model) as tokens:
                    single = self._called(given.taken([record]))
            except FAILURES as error:
                return [f"the model does not accept a single record: {first_line(error)}"]
            self._tokens = frozenset(tokens)
            if batch is None:
                continue
            if [output.shape[1:] for output in single] != [output.shape[1:] for output in batch]:
                return ["the model's output for a single record has another shape"]
            if not all(
                bool(close(one, output[[record]], output, ALLOWED, given.precision).all())
                for one, output in zip(single, batch, strict=True)
            ):
                raise _depends(record, "the record alone against the record in the batch")
        return []

    def _with_others_replaced(
        self,
        given: Given,
        batch: list[Tensor] | None,
        usable: list[int],
        replaced: Tensor,
        kind: str,
        *,
        gradients: bool = False,
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
            if not self._tokens and not any(entry.is_floating_point() for entry in given.rows()):
                return []
            other = given.mapped(lambda entry: fill(entry, replaced))
            inside = embeddings_replaced(self._tokens, given.records, lambda output: fill(output, replaced))
        try:
            with inside, nullcontext() if kind == _COPIES else careful_numbers(self._model, given):
                outputs = self._called(other, gradients=gradients)
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
            raise _depends(record if names is None else names[record], f"the record in its batch against the record {kind}")
        return []


@contextmanager
def precision_of(model: nn.Module, least: torch.dtype) -> Generator[Callable[[], torch.dtype]]:
    """Within: what is given tells the coarsest type of number that the modules have computed in."""
    found = [least]

    def looked_at(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point():
            found[0] = coarser(found[0], output.dtype)

    handles = [module.register_forward_hook(looked_at) for module in model.modules()]
    try:
        yield lambda: found[0]
    finally:
        for handle in handles:
            handle.remove()


def _finite(outputs: list[Tensor], records: int) -> list[int]:
    if not outputs:
        return []
    finite = torch.stack([torch.isfinite(output).reshape(records, -1).all(1).cpu() for output in outputs])
    return finite.all(0).nonzero()[:, 0].tolist()


def _outputs(output: Any, records: int) -> list[Tensor]:
    entries = list(output.values()) if isinstance(output, Mapping) else tree_flatten(output)[0]
    return [entry.detach() for entry in entries if has_rows(entry, records) and entry.is_floating_point()]


def _depends(record: int, comparison: str) -> InputError:
    return InputError(
        f"the model's output for record {record} depends on the other records of its batch.",
        source=f"the clipper's self-check: {comparison}",
        remedy=BATCH_STATISTICS,
    )
