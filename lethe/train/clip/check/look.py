"""The one check: a few records alone against their part of a batch, alone again after the others, and nothing written meanwhile.

It looks for accidents: a mean over the batch, a reshape for a transpose, padding that leaks, a cache of the first batch. What is built to
deceive it is not looked for; `isolation="enforced"` is for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train.clip.batch import records_of, rows_of
from lethe.train.clip.check.draws import Chance, SameDraws, without_hidden_draws
from lethe.train.clip.check.kept_state import Attributes, digests
from lethe.train.clip.parts.part import ParameterGradients
from lethe.train.clip.ways.isolated import Losses, gradient_of
from lethe.train.core.comparison import ALLOWED, ALLOWED_IN_SHAPE, BATCH_STATISTICS, FAILURES, coarser, sample

_FEW = 3  # records that are compared

Gradient = dict[nn.Parameter, Tensor]


class Look:
    """One batch that is looked at: a few of its usable records, of those collated alone, as batches of one, where the batch is padded.

    Raises:
        InputError: the losses are made of parameters of other modules.
        Exception: a record alone fails.
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        names: Mapping[nn.Parameter, str],
        batch: Any,
        usable: Sequence[int],
        collated: Mapping[int, Any],
        attributes: Attributes,
    ) -> None:
        self._model, self._losses, self._names, self._attributes = model, losses, names, attributes
        self._written = digests(model)
        few = sample([*collated] or usable, _FEW)
        self._records = {record: collated.get(record, rows_of(batch, [record])) for record in few}
        self._chance = Chance()
        self.random = False
        self._before = {record: self._alone(rows, own=record == few[0]) for record, rows in self._records.items()}
        self._batch, self._usable = batch, usable
        self._padded = [record for record in few if record in collated]

    def _alone(self, rows: Any, *, own: bool = False) -> tuple[Gradient, Tensor]:
        copied = rows_of(rows, [0])  # the function may write into what it is given
        return self.same_draws(1, lambda: gradient_of(self._losses, list(self._names), copied, own=own))

    def same_draws(self, records: int, computed: Callable[[], Any], *, side_by_side: bool = False) -> Any:
        """What is computed where each record is given the draws of one.

        Args:
            records: of the batch that is computed.
            computed: computes it.
            side_by_side: how several rows of a record lie, see SameDraws.
        """
        self._chance.rewind()
        draws = SameDraws(records, side_by_side=side_by_side)
        try:
            with draws, without_hidden_draws(self._model.modules()) as hidden:
                self.random = self.random or hidden
                return computed()
        finally:
            self.random = self.random or draws.calls > 0 or self._chance.drew()
            self._chance.rewind()

    @torch.no_grad()
    def difference(
        self, parts: Mapping[nn.Parameter, ParameterGradients], losses: Tensor, rows: Sequence[int], precision: torch.dtype
    ) -> str | None:
        """Where some rows of the batch have other losses or gradients than their records alone, in words; None: nowhere.

        Args:
            parts: the gradients of these rows.
            losses: of these rows, shape (len(rows),).
            rows: their places in the batch.
            precision: the coarsest type of number that layers computed in.
        """
        if said := self._other_loss(losses, rows, precision):
            return said
        for record in self._records:
            if record in rows:
                row = rows.index(record)
                if off := self._off(record, lambda own, row=row: parts[own].one(row) if own in parts else torch.zeros_like(own), precision):
                    return "the gradient of record {} in {} is off by {:.3g} from its own alone, of norm {:.3g}".format(record, *off)
        return None

    def _off(self, record: int, other: Callable[[nn.Parameter], Tensor], precision: torch.dtype | None) -> tuple[str, float, float] | None:
        """The first parameter in which a record has another gradient than alone, by how much, and the norm of that; None: there is none.

        What cannot be measured alone is not compared. Of batches of one shape no `precision` is given: they are rounded alike.
        """
        gradient, _ = self._before[record]
        whole = _norm(gradient.values())
        for parameter, alone in gradient.items() if whole < float("inf") else ():
            error, size = _norm([other(parameter).reshape(alone.shape) - alone]), _norm([alone])
            alike = 10 * ALLOWED_IN_SHAPE[parameter.dtype]
            if not error <= (alike if precision is None else ALLOWED[coarser(parameter.dtype, precision)]) * (size + 0.01 * whole):
                return self._names[parameter], error, size
        return None

    def _other_loss(self, losses: Tensor, rows: Sequence[int], precision: torch.dtype) -> str | None:
        compared = [record for record in self._records if record in rows]
        if not compared:
            return None
        alone = torch.cat([self._before[record][1] for record in compared])
        return _differing(compared, losses[[rows.index(record) for record in compared]], alone, losses, precision, "alone")

    def apart(self, losses: Tensor, precision: torch.dtype, *, side_by_side: bool = False) -> str | None:
        """Where the losses of a batch are others than those of its random halves, in words; None: nowhere, or it has no halves.

        Args:
            losses: of the batch, shape (B,).
            precision: the coarsest type of number that layers computed in.
            side_by_side: as of `same_draws`.
        """
        order = sample(self._usable, len(self._usable))
        for half in (order[: len(order) // 2], order[len(order) // 2 :]):
            if half and len(half) < len(losses):
                rows = rows_of(self._batch, half)
                alone = self.same_draws(len(half), partial(self._losses, rows), side_by_side=side_by_side).detach()
                if said := _differing(half, losses[half], alone, losses, precision, "in half of it"):
                    return said
        return None

    def refuse_mixed(self, precision: torch.dtype) -> None:
        """Refuse a model in which a record's loss depends on the others."""
        records = records_of(self._batch)

        def computed() -> Tensor:
            with torch.no_grad():
                return self._losses(self._batch).detach()

        told = ""
        for layout in (False, True):
            try:
                together = self.same_draws(records, computed, side_by_side=layout)
                told = self._other_loss(together, range(records), precision) or self.apart(together, precision, side_by_side=layout)
            except FAILURES:  # it takes no batch, or none without gradients
                return
            if not told:
                return
        raise InputError(
            f"{told}: it depends on the other records.",
            source="the check of a batch against its records alone",
            remedy=f"{BATCH_STATISTICS} Mask padding in averages and attention; leave out what is computed of a whole batch.",
        )

    def refuse_padded(self, precision: torch.dtype) -> None:
        """Refuse a model in which a record's gradient depends on how far the others have it padded; of random ones nobody can say."""
        for record in () if self.random else self._padded:
            there, _ = self._alone(rows_of(self._batch, [record]))
            if off := self._off(record, there.__getitem__, precision):
                name, error, size = off
                raise InputError(
                    f"the gradient of record {record} in {name} depends on how far its batch is padded: off by {error:.3g} of {size:.3g}.",
                    source="the check of a batch against its records alone, each at its own length",
                    remedy="mask padding in averages, attention and losses, or pad all records to one length.",
                )

    def after(self) -> None:
        """Refuse, by a HypothesisError, a model that the batch wrote to, or that keeps what it saw."""
        now = digests(self._model)
        if written := [name for name, digest in self._written.items() if now.get(name) != digest]:
            raise HypothesisError(
                f"the forward pass, or the loss, writes {written[0]} ({len(written)} in all): what it wrote of the records has no noise.",
                source="the check of a batch: parameters and buffers before and after it",
                remedy="put the layer in eval mode, freeze the buffer, or update it in a hook of the optimiser's step.",
            )
        self._refuse_other(next(iter(self._before)), "after other records were computed")
        if left := self._attributes.changed():
            with self._attributes.fresh():  # not of the first record that the model was given
                self._refuse_other(list(self._before)[-1], f"where the model has seen no record yet: it keeps {left[0]}")

    def _refuse_other(self, record: int, when: str) -> None:
        if off := self._off(record, self._alone(self._records[record])[0].__getitem__, None):
            raise HypothesisError(
                f"record {record}: its gradient in {off[0]} {when} is off by {off[1]:.3g} of {off[2]:.3g}: something keeps what "
                "it saw, or is random.",
                source="the check of a batch: a record alone before and after the others",
                remedy="take out hidden states, memory banks and running means; draw random numbers from torch's global generator.",
            )


def _differing(records: Sequence[int], there: Tensor, alone: Tensor, losses: Tensor, precision: torch.dtype, where: str) -> str | None:
    """Where losses of records are others in their batch than alone, in words; a number that is none alone is a mixture as well."""
    finite = losses[losses.isfinite()]
    allowed = ALLOWED[coarser(losses.dtype, precision)] * (float(finite.abs().max()) if len(finite) else 0.0)
    differs = ((there - alone).abs() > allowed) | (there.isfinite() & ~alone.isfinite())
    if not bool(differs.any()):
        return None
    first = int(differs.nonzero()[0, 0])
    return f"the loss of record {records[first]} is {float(there[first]):.6g} in its batch and {float(alone[first]):.6g} {where}"


def _norm(tensors: Any) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors]).norm())
