"""Clipper: the sum of the records' clipped gradients, in the fastest way (rules of layers, vmap, one by one) that gives the right ones.
`Trainer` calls `add` with each micro-batch and `take` once a step; some batches are checked (check.py)."""

import sys
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_count
from lethe.errors import InputError, LetheError, RecordByRecordWarning
from lethe.train.clip.adaptive import AdaptiveNorm
from lethe.train.clip.check import Look
from lethe.train.clip.fast import LAYOUTS, Gradients
from lethe.train.clip.full_precision import full_precision
from lethe.train.clip.groups import METHODS, Group, as_groups, group_of
from lethe.train.clip.isolated import Losses, MeanLoss, of_records, records_of
from lethe.train.clip.module_state import Attributes
from lethe.train.clip.parts.part import UnitRows
from lethe.train.clip.record_gradients import ALONE, FAST, VMAP, RecordGradients, Way
from lethe.train.clip.sum_error import shorter
from lethe.train.clip.sums import ClippedSums, ReopenedError
from lethe.train.core.comparison import FAILURES, chance, first_line

ISOLATIONS = ("checked", "enforced", "declared")
"""Why a record's loss depends on that record alone: the fast way, checked; each record alone, by construction; the caller's word."""

_NO_MEAN = "the loss is one number for a batch, and no mean over records, nor over what each of them predicts"
_ODDS = 128  # one batch in so many is checked at random


class _Differs(Exception):
    """Raised where a way gives other gradients than the records alone."""


class _Unseen(Exception):
    """Raised where the fast way read a layer's call (its rows, its sharing) as in no batch that was checked."""


class _Schedule:
    """Which batches are checked: 1, 2, 4, 8 and so on, one of 128 at random, one half as large again as any before, and the first
    where other parameters are trained or other modules are in training mode."""

    def __init__(self) -> None:
        self._batches, self._largest = 0, 0
        self._states: set[Hashable] = set()

    def due(self, records: int, state: Hashable) -> bool:
        """Whether the next batch is one of them."""
        self._batches += 1
        larger, is_new_state = records > 1.5 * self._largest, state not in self._states
        due = self._batches & (self._batches - 1) == 0 or larger or is_new_state or chance.randrange(_ODDS) == 0
        if due:
            self._largest = max(self._largest, records)
            self._states.add(state)
        return due


class Clipper:
    r"""Sums $\sum_i w_i \nabla \ell_i$ with $\|w_i \nabla \ell_i\| \le C$, of the trained parameters of a model.

        clipper = Clipper(model, lambda batch: loss(model(batch["x"]), batch["y"]), clip_norm=1.0)
        clipper.add({"x": features, "y": targets})
        sums = clipper.take()

    The model stays as it is: hooks are on its layers only while a batch is computed. A record that is not finite adds 0.

    Args:
        model: any module.
        losses: (batch) -> shape (B,), one loss a record, not averaged, or a `MeanLoss`. The batch is any nest of tensors that have the
            records along their first dimension; it is given parts of it as well, down to one record.
        clip_norm: C > 0; or groups of parameters, each with a norm of its own, and then C is the root of the sum of their squares. On the
            fast way a group is clipped and added as soon as its gradients are there, and nothing of them is kept: with `per_layer` groups,
            layer by layer. Not so in batches that are compared, for units, and with "normalise".
        method: "clip", "normalise" or "automatic", see METHODS.
        isolation: "checked": the fast way, compared with records alone in some batches; where it differs or cannot be followed, they are
            computed alone. "enforced": always alone, by `torch.func.vmap` or one after another. "declared": the fast way, and only what a
            `MeanLoss` is a mean of is compared. Python objects of modules or the loss are outside "enforced" and "declared".
        margin: the share of C that is left for what float64 may put the sums off, see `margin_of`.
        gradient_memory: bytes that records' gradients may take, beside what the backward pass let go of; None: 8 MiB, on a GPU 64.
        contributing: tables whose sums have a last column more: what records, each of at most this norm, contribute to the row.
        adaptive: the norm in force, in place of the method: gradients clipped to it, in its units of C; `take` gives its count as well.

    Attributes:
        groups: of parameters.
        method: the Method.
        isolation: the argument.
        ways: the names of the ways that were taken so far.
        checked: whether a batch was compared.
        reached: the parameters that some record's loss was made of so far.

    Raises:
        InputError: an argument is none of these, or the model mixes records by what its modules are (`refuse_model`).
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        clip_norm: float | Sequence[Group] = 1.0,
        *,
        method: str = "clip",
        isolation: str = "checked",
        margin: float = 0.0,
        gradient_memory: int | None = None,
        contributing: Mapping[nn.Parameter, float] | None = None,
        adaptive: AdaptiveNorm | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"model: got {type(model).__name__}; it needs a torch.nn.Module.")
        if not callable(losses):
            raise InputError(
                f"losses: got {type(losses).__name__}; it needs a function of a batch to one loss a record.",
                remedy='give a function such as lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none").',
            )
        if method not in METHODS:
            raise InputError(f"method: got {method!r}; it needs one of {', '.join(METHODS)}.")
        if isolation not in ISOLATIONS:
            raise InputError(f"isolation: got {isolation!r}; it needs one of {', '.join(ISOLATIONS)}.")
        if gradient_memory is not None:
            gradient_memory = require_count("gradient_memory", gradient_memory, low=0)
        self.model, self.losses, self.isolation = model, losses, isolation
        self.groups, self.method = as_groups(clip_norm), METHODS[method]
        self.ways: set[str] = set()
        self.checked = False
        self._sums = ClippedSums(shorter(self.groups, margin), self.method, contributing, adaptive)
        fast = [Way(FAST, layout, items, shared) for shared in (False, True) for layout in LAYOUTS for items in (True, False)]
        self._tried = [*(fast if isolation != "enforced" else ()), Way(VMAP), Way(ALONE)]
        self._keeps = len(self.groups) == 1 or self.method.enlarges  # all gradients until the end of a batch
        self._schedule = _Schedule()
        self._attributes: Attributes | None = None
        self._gradients = RecordGradients(model, losses, gradient_memory)
        self.reached = self._gradients.reached
        self._refuse_ungrouped()

    @property
    def precision(self) -> torch.dtype:
        """The coarsest type of number that layers have computed in."""
        return self._gradients.precision

    @property
    def measured(self) -> bool | None:
        """Whether any record had a gradient that could be measured; None before there were records. Private."""
        return None if self._sums.largest is None else bool(self._sums.largest >= 0)

    @property
    def contributed(self) -> bool | None:
        """Whether any record had a gradient that could be measured and is not 0; None before there were records."""
        return None if self._sums.largest is None else bool(self._sums.largest > 0)

    def add(
        self,
        batch: Any,
        *,
        counted: Tensor | None = None,
        units: Sequence[Sequence[int]] | None = None,
        collated: Mapping[int, Any] | None = None,
    ) -> Tensor:
        """Add the clipped gradients of a batch's records to the sums; several batches of one step give the sums of all.

        Args:
            batch: a nest of tensors, records first.
            counted: shape (B,), bool; False for padding that is no record and adds nothing. None: all are records.
            units: the rows that are clipped as one, such as the records of each user, by the gradient of the mean of their losses; None:
                each by itself. All rows of a unit must be in one batch.
            collated: some records as batches of one, by their places, where the batch was padded for the others: the check takes these.
        Returns:
            The losses, detached, shape (B,); 0 for what does not count, where records were computed alone.
        Raises:
            InputError: the losses are not one a record, or depend on other records.
            HypothesisError: the forward pass writes into the model, or keeps what it saw; looked for in checked batches.
        """
        if counted is not None and units is not None:
            raise InputError("counted: given together with units.", remedy="leave out the rows that are no records.")
        records = records_of(batch)
        if not records:
            return torch.zeros(0)
        if self._gradients.survey():
            self._refuse_ungrouped()
        torch.clear_autocast_cache()  # of weights as they were before the last step, where one autocast is around all steps
        # What `torch.compile` compiled runs as it was written, so that its layers are called.
        eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
        tried = list(self._tried)
        try:
            with eager, full_precision():
                return self._add(batch, records, counted, units, collated or {})
        except (LetheError, torch.OutOfMemoryError):  # what was refused is looked at once more, whoever tries it again
            self._tried, self._schedule = tried, _Schedule()
            raise

    def _add(
        self,
        batch: Any,
        records: int,
        counted: Tensor | None,
        units: Sequence[Sequence[int]] | None,
        collated: Mapping[int, Any],
    ) -> Tensor:
        look = None
        if self.isolation == "checked" and (self._schedule.due(records, self._gradients.state) or collated):
            look = self._look(batch, counted, collated)
        reason = ""
        while True:
            way = self._tried[0]
            try:
                with self._sums.all_or_nothing():
                    if way.name == FAST:
                        losses = self._fast(way, batch, records, counted, units, look)
                    else:
                        losses = self._isolated_sums(way, batch, records, counted, units, look)
                    if look is not None:
                        look.after()
                    if way.name == FAST and records > 1:  # of one record all rows are its own
                        checked = self.isolation == "checked"
                        if look is not None:
                            self._gradients.known |= self._gradients.choices
                        elif self._gradients.unseen(layers=checked) and (look := self._look(batch, counted, collated)) is not None:
                            raise _Unseen
                break
            except _Unseen:
                continue
            except (LetheError, torch.OutOfMemoryError):
                raise
            except (*FAILURES, _Differs) as error:
                if len(self._tried) == 1 or not (isinstance(error, _Differs) or self._recurs(way, batch, records)):
                    raise
                reason = reason or first_line(error)
                self._tried.pop(0)
                self._gradients.known.clear()
                self._keeps |= self._tried[0].shared  # what is shared is of several groups
                while self._tried[0].name == FAST and self._gradients.same(way, self._tried[0]):
                    self._tried.pop(0)
                if way.name == FAST != self._tried[0].name and self.isolation == "checked":
                    look = look or self._look(batch, counted, collated)
                    if look is not None:
                        look.refuse_padded(self._gradients.precision)
                        look.refuse_mixed(self._gradients.precision)
                        look.after()
        if reason and way.name != FAST:
            how = "under torch.func.vmap" if way.name == VMAP else "record by record"
            warnings.warn(f"the model is trained {how}, as exact and slower: {reason}", RecordByRecordWarning, stacklevel=3)
        self.ways.add(way.name)
        return losses

    def take(self, *, rows: bool = False) -> dict[nn.Parameter, Tensor]:
        """The sums since the last `take`, float64, for every trained parameter, 0 where nothing came; large tables may come by `rows`."""
        if not self._sums.sums and self._gradients.survey():
            self._refuse_ungrouped()
        return self._sums.take(list(self._gradients.names), rows=rows)

    def _refuse_ungrouped(self) -> None:
        for name in self._gradients.names.values():
            group_of(name, self.groups)

    # The check.

    def _look(self, batch: Any, counted: Tensor | None, collated: Mapping[int, Any]) -> Look | None:
        """A look at the batch before it is computed; None: it holds no record."""
        self._attributes = self._attributes or Attributes(self.model)
        usable = range(records_of(batch)) if counted is None else counted.nonzero()[:, 0].tolist()
        if not usable:
            return None
        try:
            return Look(self.model, self._gradients, batch, usable, collated, self._attributes)
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, LetheError | torch.OutOfMemoryError):
                raise
            raise InputError(
                f"a record alone, as a batch of one, does not go through the model and the loss: {first_line(error)}",
                source="the check of a batch against its records alone",
                remedy="let both take a batch of one: no batch normalisation, squeeze() or topk over it; labels and tokens the model has.",
            ) from error

    def _recurs(self, way: Way, batch: Any, records: int) -> bool:
        """Whether a way fails again: what came and went, such as memory that was short, is no reason to leave it."""
        try:
            if way.name == FAST:
                self._gradients.together(way, batch, records, None)
        except FAILURES:
            return True
        return way.name != FAST

    # Three ways.

    def _isolated_sums(
        self, way: Way, batch: Any, records: int, counted: Tensor | None, units: Sequence[Sequence[int]] | None, look: Look | None
    ) -> Tensor:
        if look is not None:
            look.refuse_padded(self._gradients.precision)
        record_rows = list(range(records)) if counted is None else counted.nonzero()[:, 0].tolist()
        groups = [[record] for record in record_rows] if units is None else [list(rows) for rows in units]
        record_losses: Tensor | None = None
        for rows, parts, losses in self._gradients.apart(way, batch, groups):
            if look is not None and units is None and not look.random and way.name == VMAP:
                self._require(way, look, parts, losses[1], rows)
            self._sums.add(parts, self._gradients.names, losses[0], None)
            record_losses = torch.zeros(records, dtype=losses[1].dtype, device=losses[1].device) if record_losses is None else record_losses
            record_losses[rows] = losses[1]
        return torch.zeros(records) if record_losses is None else record_losses

    def _fast(
        self, way: Way, batch: Any, records: int, counted: Tensor | None, units: Sequence[Sequence[int]] | None, look: Look | None
    ) -> Tensor:
        if look is None and units is None and not self._keeps and (arrived := self._arrived(way, batch, records, counted)) is not None:
            return arrived
        if look is not None and look.random:
            same, of_same = look.same_draws(
                records, lambda: self._gradients.together(way, batch, records, None), side_by_side=way.layout == LAYOUTS[1]
            )
            self._require(way, look, same, of_same, range(records))
        parts, batch_losses = self._gradients.together(way, batch, records, units)
        if look is not None and not look.random:
            if units is None:
                self._require(way, look, parts, batch_losses, range(records))
            else:
                self._require(way, look, *self._gradients.together(way, batch, records, None), range(records))
        losses, record_losses = of_records(batch_losses)
        if units is None:
            self._sums.add(parts, self._gradients.names, losses, counted)
            return record_losses
        table = UnitRows([list(rows) for rows in units], losses.device)
        with torch.no_grad():
            grouped = {parameter: parts.pop(parameter).grouped(table).settled() for parameter in list(parts)}
        self._sums.add(grouped, self._gradients.names, table(losses).sum(1), None)
        return record_losses

    def _arrived(self, way: Way, batch: Any, records: int, counted: Tensor | None) -> Tensor | None:
        """The losses of a batch whose groups are added as their gradients arrive; None: it cannot be, and nothing was added."""
        arriving = self._sums.arriving(self._gradients.names, counted)
        try:
            _, batch_losses = self._gradients.together(way, batch, records, None, arriving)
        except ReopenedError:  # its layers are computed again one after another, in several checkpoints
            self._keeps = True
            return None
        losses, record_losses = of_records(batch_losses)
        return record_losses if self._sums.add_arrived(arriving, losses) else None

    def _require(self, way: Way, look: Look, parts: Gradients, losses: Tensor | MeanLoss, rows: Sequence[int]) -> None:
        self.checked = True
        with torch.no_grad():
            message = look.difference(parts, losses, rows, self._gradients.precision)
        if way.name == FAST and not message:
            recompute = partial(self._gradients.losses_of, way) if way.shared and look.random else None
            message = look.apart(losses, self._gradients.precision, recompute, side_by_side=way.layout == LAYOUTS[1], items=way.items)
        if message:
            raise _Differs(message if isinstance(losses, Tensor) else f"{_NO_MEAN}: {message}")
