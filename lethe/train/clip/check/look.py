"""The one check: a few records alone against their part of a batch, alone again after the others, and nothing written meanwhile.

It looks for accidents: a mean over the batch, a reshape for a transpose, padding that leaks, a cache of the first batch. What is built to
deceive it is not looked for; `isolation="enforced"` is for that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train.clip.batch import records_of, rows_of
from lethe.train.clip.check.draws import Chance, SameDraws, without_hidden_draws
from lethe.train.clip.check.kept_state import Attributes, digests
from lethe.train.clip.parts.part import Part
from lethe.train.clip.ways.isolated import Losses, gradient_of, refuse_other_parameters
from lethe.train.core.comparison import ALLOWED, ALLOWED_IN_SHAPE, BATCH_STATISTICS, FAILURES, chance, coarser, sample

_FEW = 3  # records that are compared
_ODDS = 128  # of a batch to be looked at by chance

Gradient = dict[nn.Parameter, Tensor]


class Schedule:
    """Which batches are looked at: 1, 2, 4, 8 and so on, one of 128 at random, one half as large again as any before, and the first
    where other parameters are trained or other modules are in training mode."""

    def __init__(self) -> None:
        self._batches, self._largest = 0, 0
        self._states: set[Hashable] = set()

    def due(self, records: int, state: Hashable) -> bool:
        """Whether the next batch is one of them."""
        self._batches += 1
        due = (
            self._batches & (self._batches - 1) == 0
            or records > 1.5 * self._largest
            or state not in self._states
            or chance.randrange(_ODDS) == 0
        )
        if due:
            self._largest = max(self._largest, records)
            self._states.add(state)
        return due


class Look:
    """One batch that is looked at.

    Args:
        model, losses: of the Clipper.
        names: of the trained parameters.
        batch: all of it.
        usable: the records that count.
        collated: some records collated alone, as batches of one, where the batch is padded.
        attributes: of the model before its first batch.
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
        one = rows_of(self._records[few[0]], [0])
        self.same_draws(1, lambda: refuse_other_parameters(losses, list(names), one))
        self._before = {record: self._alone(rows) for record, rows in self._records.items()}
        self._batch, self._usable = batch, usable
        self._padded = [record for record in few if record in collated]

    def _alone(self, rows: Any) -> tuple[Gradient, Tensor]:
        copied = rows_of(rows, [0])  # the function may write into what it is given
        return self.same_draws(1, lambda: gradient_of(self._losses, list(self._names), copied))

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
            with draws, without_hidden_draws(self._model.modules()):
                return computed()
        finally:
            self.random = self.random or draws.calls > 0 or self._chance.drew() or _drops(self._model)
            self._chance.rewind()

    @torch.no_grad()
    def difference(self, parts: Mapping[nn.Parameter, Part], losses: Tensor, rows: Sequence[int], precision: torch.dtype) -> str | None:
        """Where some rows of the batch have other losses or gradients than their records alone, in words; None: nowhere.

        Args:
            parts: the gradients of these rows.
            losses: of these rows, shape (len(rows),).
            rows: their places in the batch.
            precision: the coarsest type of number that layers computed in.
        """
        if said := self._other_loss(losses, rows, precision):
            return said
        for record, (gradient, _) in self._before.items():
            if record not in rows:
                continue
            whole = _norm(gradient.values())
            if not whole < float("inf"):  # nor is it NaN
                continue
            for parameter, alone in gradient.items():
                one = torch.zeros_like(alone)
                if parameter in parts:
                    one = parts[parameter].one(rows.index(record)).reshape(alone.shape)
                error, size = float((one - alone).double().norm()), float(alone.double().norm())
                if not error <= ALLOWED[coarser(parameter.dtype, precision)] * (size + 0.01 * whole):
                    name = self._names[parameter]
                    return f"the gradient of record {record} in {name} is off by {error:.3g} from its own alone, of norm {size:.3g}"
        return None

    def _other_loss(self, losses: Tensor, rows: Sequence[int], precision: torch.dtype) -> str | None:
        scale = _scale(losses)
        for record, (_, loss) in self._before.items():
            if record in rows:
                there, alone = float(losses[rows.index(record)]), float(loss)
                # A number that is none alone, as the deviation of one record, is a mixture as well.
                if abs(there - alone) > ALLOWED[coarser(losses.dtype, precision)] * scale or isfinite(there) > isfinite(alone):
                    return f"the loss of record {record} is {there:.6g} in its batch and {alone:.6g} alone"
        return None

    def apart(self, losses: Tensor, precision: torch.dtype, *, side_by_side: bool = False) -> str | None:
        """Where the losses of a batch are others than those of its random halves, in words; None: nowhere, or it has no halves.

        Args:
            losses: of the batch, shape (B,).
            precision: the coarsest type of number that layers computed in.
            side_by_side: as of `same_draws`.
        """
        order = sample(self._usable, len(self._usable))
        for half in (order[: len(order) // 2], order[len(order) // 2 :]):
            if not half or len(half) == len(losses):
                continue
            rows, count = rows_of(self._batch, half), len(half)
            alone = self.same_draws(count, partial(self._losses, rows), side_by_side=side_by_side).detach()
            there = losses[half]
            allowed = ALLOWED[coarser(losses.dtype, precision)] * _scale(losses)
            differs = ((there - alone).abs() > allowed) & alone.isfinite() & there.isfinite()
            if bool(differs.any()):
                worst = int(differs.nonzero()[0, 0])
                whole, part = float(there[worst]), float(alone[worst])
                return f"the loss of record {half[worst]} is {whole:.6g} in its batch and {part:.6g} in half of it"
        return None

    def refuse_mixed(self, precision: torch.dtype) -> None:
        """Refuse a model in which a record's loss depends on the others.

        Raises:
            InputError: see above.
        """
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
        """Refuse a model in which a record's gradient depends on how far the others have it padded; of random ones nobody can say.

        Raises:
            InputError: see above.
        """
        for record in () if self.random else self._padded:
            gradient, _ = self._before[record]
            there, _ = self._alone(rows_of(self._batch, [record]))
            whole = _norm(gradient.values())
            for parameter, alone in gradient.items():
                error, size = float((there[parameter] - alone).double().norm()), float(alone.double().norm())
                if whole < float("inf") and not error <= ALLOWED[coarser(parameter.dtype, precision)] * (size + 0.01 * whole):
                    raise InputError(
                        f"the gradient of record {record} in {self._names[parameter]} depends on how far its batch is padded: it is off by "
                        f"{error:.3g} from that of the record at its own length, of norm {size:.3g}.",
                        source="the check of a batch against its records alone: the longest record decides how far others are padded",
                        remedy="mask padding in averages, attention and losses, or pad all records to one length.",
                    )

    def after(self) -> None:
        """Compare what the batch left behind.

        Raises:
            HypothesisError: the model was written to, or keeps what it saw.
        """
        now = digests(self._model)
        if written := [name for name, digest in self._written.items() if now.get(name) != digest]:
            raise HypothesisError(
                f"the forward pass, or the loss, writes {written[0]} ({len(written)} in all): what it wrote of the records has no noise.",
                source="the check of a batch: parameters and buffers before and after it",
                remedy="put the layer in eval mode, freeze the buffer, or update it in a hook of the optimiser's step.",
            )
        record, rows = next(iter(self._records.items()))
        again, _ = self._alone(rows)
        self._compare(record, again, "after other records were computed")
        if left := self._attributes.changed():
            record, rows = list(self._records.items())[-1]  # not the first that the model was given
            with self._attributes.fresh():
                fresh, _ = self._alone(rows)
            self._compare(record, fresh, f"where the model has seen no record yet: it keeps {left[0]}")

    def _compare(self, record: int, other: Gradient, when: str) -> None:
        gradient, _ = self._before[record]
        whole = _norm(gradient.values())
        if not whole < float("inf"):
            return
        for parameter, before in gradient.items():
            error = float((other[parameter] - before).double().norm())
            if not error <= 10 * ALLOWED_IN_SHAPE[parameter.dtype] * (float(before.double().norm()) + 0.01 * whole):
                raise HypothesisError(
                    f"record {record} has another gradient in {self._names[parameter]} {when} (off by {error:.3g} of {whole:.3g}): "
                    "the model or the loss keeps what it saw, or draws numbers in a way that cannot be repeated.",
                    source="the check of a batch: a record alone before and after the others",
                    remedy="take out what is kept of one record for the next (a hidden state, a memory bank, a running mean), and draw "
                    "from torch's global generator.",
                )


def _scale(losses: Tensor) -> float:
    finite = losses[losses.isfinite()]
    return float(finite.abs().max()) if len(finite) else 0.0


def _norm(tensors: Any) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors]).norm())


def _drops(model: nn.Module) -> bool:
    return any(isinstance(module, nn.RNNBase) and module.dropout and module.training for module in model.modules())
