"""Self-check of forward passes: a record's output must not depend on the other records of its batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.errors import InputError
from lethe.train.clipping.checks.order import fewer_in_another_order, layers_watched, require_order
from lethe.train.clipping.checks.replaced_batch import (
    CarefulNumbers,
    Given,
    embeddings_of_one_record,
    embeddings_replaced,
    has_rows,
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
_FEW = 8  # records that pass through it with gradients enabled, in a batch of their own
_NAN = "where others are NaN"
_FAR = "where others are very large numbers"
_COPIES = "where others are copies of itself or of another"


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

    def measured(self, given: Given) -> Given:
        """The same call, with the coarsest precision that the model computes a few of its records in."""
        with self._calls(given), _precision_of(self._model, given.precision) as seen, suppress(*FAILURES):
            self._called(given.taken(list(range(min(_ALONE, given.records)))))
        return replace(given, precision=seen())

    def thorough(self, given: Given) -> str | None:
        """All comparisons, with each half of the records replaced in turn.

        Args:
            given: what the model was called with.
        Returns:
            Why a comparison could not be made; None if all were, and agreed.
        Raises:
            InputError: a record's output depends on the other records of its batch.
        """
        rows = given.rows()
        if not rows:
            return "no argument of the model has the records first"
        reasons: list[str] = []
        with self._calls(given):
            try:
                batch, again = (self._called(given) for _ in range(2))
            except FAILURES as error:
                return f"the model could not be called again: {first_line(error)}"
            repeatable = bool(batch) and all(
                bool(close(one, other, other, ALLOWED, given.precision).all()) for one, other in zip(batch, again, strict=True)
            )
            drew = self._rewind.drew()
            if not repeatable or drew:
                reasons.append("the model's output is random, or holds no tensor with the records first")
            usable = _finite(batch, given.records)
            first, second = halves(given.records, rows[0].device)
            if batch and not usable:
                reasons.append("no record's output is finite")
            known = batch if repeatable else None
            if usable and batch:
                reasons += self._smaller(given, None if drew else known, usable)
                for replaced in (first, second):
                    reasons += self._with_others_replaced(given, known, usable, replaced, _NAN)
                reasons += self._with_others_replaced(given, known, usable, first, _FAR)
                if known is not None:
                    reasons += self._with_others_replaced(given, known, usable, second, _COPIES)
                    if not drew:
                        self._order(given)
        return "; ".join(dict.fromkeys(reasons)) or None

    def _order(self, given: Given) -> None:
        """Some of the records, and again in another order: each layer's rows must follow."""
        some = given.few()
        order = fewer_in_another_order(some.records)
        try:
            with layers_watched(self._model) as seen:
                self._called(some)
            with layers_watched(self._model) as moved:
                self._called(some.taken(order))
        except FAILURES:
            return  # `_smaller` says as much
        require_order(seen, moved, order, {module: path for path, module in self._model.named_modules()}, given.precision)

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
        with self._calls(given):
            try:
                with _precision_of(self._model, given.precision) as seen:
                    batch = self._called(given)
            except FAILURES:
                return
            if usable := _finite(batch, given.records):
                given = replace(given, precision=seen())
                self._with_others_replaced(given, batch, usable, replaced, chance.choice(kinds))

    @contextmanager
    def _calls(self, given: Given) -> Generator[None]:
        """Within: `_called` may be used; nothing of it is left afterwards."""
        arguments = (given.args, given.kwargs)
        with undisturbed(self._model, arguments, skipped=given.tensors()) as rewind, Quiet() as mode:
            self._rewind, self._mode = rewind, mode
            yield

    def _called(self, given: Given, *, gradients: bool = False) -> list[Tensor]:
        self._rewind()
        self._mode.begin()
        with torch.set_grad_enabled(gradients):
            return _outputs(given.called(self._model), given.records)

    def _smaller(self, given: Given, batch: list[Tensor] | None, usable: list[int]) -> list[str]:
        """Records alone; and a few among NaN, with gradients enabled as in training, which costs memory for these few only."""
        for record in sample(usable, _ALONE):
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
        few = sample(usable, _FEW)
        if len(few) < 2:
            return []
        some = given.taken(few)
        try:
            expected = self._called(some, gradients=True)
        except FAILURES as error:
            return [f"the model does not accept a few of the records: {first_line(error)}"]
        everyone = _finite(expected, len(few))
        replaced = halves(len(few), given.rows()[0].device)[0]
        known = None if batch is None else expected
        return self._with_others_replaced(some, known, everyone, replaced, _NAN, gradients=True, names=few)

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
        if kind == _COPIES:
            copied = chance.choice(kept)
            other = given.mapped(lambda entry: with_copies(entry, replaced.to(entry.device), copied))
            if all(torch.equal(one, before) for one, before in zip(other.rows(), given.rows(), strict=True)):
                return [] if any(entry.is_floating_point() for entry in given.rows()) else [ALIKE]
            inside: Any = nullcontext()
        else:
            fill: Callable[[Tensor, Tensor], Tensor] = with_nothing if kind == _NAN else with_large_numbers
            if not self._tokens and not any(entry.is_floating_point() for entry in given.rows()):
                return []
            other = given.mapped(lambda entry: fill(entry, replaced))
            inside = embeddings_replaced(self._tokens, given.records, lambda output: fill(output, replaced))
        try:
            with inside, nullcontext() if kind == _COPIES else CarefulNumbers():
                outputs = self._called(other, gradients=gradients)
        except FAILURES as error:
            return [f"the model does not accept a batch {kind}: {first_line(error)}"]
        if batch is None:
            agree = [torch.isfinite(output).reshape(given.records, -1).all(1) for output in outputs] if kind == _NAN else []
        elif [output.shape for output in outputs] != [output.shape for output in batch]:
            return ["the shape of the model's output depends on what the records hold"]
        else:
            agree = [close(one, output, output, ALLOWED_IN_SHAPE, given.precision) for one, output in zip(outputs, batch, strict=True)]
        agreed = torch.stack(agree).all(0).tolist() if agree else [True] * given.records
        if (record := next((record for record in kept if not agreed[record]), None)) is not None:
            raise _depends(record if names is None else names[record], f"the record in its batch against the record {kind}")
        return []


@contextmanager
def _precision_of(model: nn.Module, least: torch.dtype) -> Generator[Callable[[], torch.dtype]]:
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
