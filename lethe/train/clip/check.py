"""The check of a user's model: the gradients of a few records in their batch are compared with those of each record by itself. The
sensitivity bound needs that a record's gradient depends on that record alone, which a batch norm or a leaking mask breaks silently.
`Clipper` checks some batches by a `Look` before it adds them; where they differ it takes a slower way, or refuses the model.

It looks for accidents: a mean over the batch, a reshape for a transpose, padding that leaks, a cache of the first batch. What is built to
deceive it is not looked for; `isolation="enforced"` is for that.
"""

import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train.clip.isolated import MeanLoss, gradient_of, records_of, rows_of
from lethe.train.clip.module_state import Attributes, digests
from lethe.train.clip.parts.part import ParameterGradients
from lethe.train.clip.parts.row_sums import added, of_rows
from lethe.train.clip.record_gradients import RecordGradients
from lethe.train.clip.shared_draws import SameDraws
from lethe.train.core.comparison import ALLOWED, ALLOWED_IN_SHAPE, BATCH_STATISTICS, FAILURES, coarser, sample
from lethe.train.core.tensors import is_shard

# A record's gradient of so many numbers is kept by its rows.
_LARGE = 2**20


class Chance:
    """The random generators of torch, numpy and Python, as they are now."""

    def __init__(self) -> None:
        self._devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        self._torch = self._now()
        self._others = random.getstate(), np.random.get_state()  # noqa: NPY002 - what models draw from

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._devices)]

    def rewind(self) -> None:
        """Set them back."""
        torch.set_rng_state(self._torch[0])
        for device, state in zip(self._devices, self._torch[1:], strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._others[0])
        np.random.set_state(self._others[1])  # noqa: NPY002 - what models draw from

    def drew(self) -> bool:
        """Whether numbers were drawn since."""
        same = all(torch.equal(now, before) for now, before in zip(self._now(), self._torch, strict=True))
        now, before = np.random.get_state(), self._others[1]  # noqa: NPY002 - what models draw from
        return not same or random.getstate() != self._others[0] or now[2] != before[2] or not np.array_equal(now[1], before[1])  # pyright: ignore


@contextmanager
def without_hidden_draws(modules: Iterable[nn.Module]) -> Generator[bool]:
    """Within: recurrent layers drop nothing; whether they would have."""
    dropping = [(module, module.dropout) for module in modules if isinstance(module, nn.RNNBase) and module.dropout and module.training]
    try:
        for module, _ in dropping:
            module.dropout = 0.0
        yield bool(dropping)
    finally:
        for module, dropout in dropping:
            module.dropout = dropout


_FEW = 3  # records that are compared

Gradient = dict[nn.Parameter, Tensor]


class Look:
    """The check of one batch: a few of its records (where it is padded, of those also collated alone) are computed as batches of one.

    Raises an InputError for losses made of parameters of other modules, and what a record alone raises.
    """

    def __init__(
        self,
        model: nn.Module,
        gradients: RecordGradients,
        batch: Any,
        usable: Sequence[int],
        collated: Mapping[int, Any],
        attributes: Attributes,
    ) -> None:
        self._model, self._losses, self._names, self._reached = model, gradients.losses, gradients.names, gradients.reached
        self._attributes = attributes
        self._written = digests(model)
        compared_records = sample([*collated] or usable, _FEW)
        self._records = {record: collated.get(record, rows_of(batch, [record])) for record in compared_records}
        self._chance = Chance()
        self.random = False
        self._before = {record: self._alone(rows, compute_own=record == compared_records[0]) for record, rows in self._records.items()}
        self._batch, self._usable = batch, usable
        self._padded = [record for record in compared_records if record in collated]

    def _alone(self, rows: Any, *, compute_own: bool = False) -> tuple[Gradient, Tensor]:
        copied = rows_of(rows, [0])  # the function may write into what it is given
        with _sparse_tables(self._model):
            isolated = self.same_draws(
                1, lambda: gradient_of(self._losses, list(self._names), copied, reached=self._reached, accumulate=compute_own)
            )
        return {parameter: _by_rows(gradient) for parameter, gradient in isolated[0].items()}, isolated[1]

    def same_draws(self, records: int, computed: Callable[[], Any], *, side_by_side: bool = False) -> Any:
        """What is computed where each record is given the draws of one."""
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
        self, parts: Mapping[nn.Parameter, ParameterGradients], losses: Tensor | MeanLoss, rows: Sequence[int], precision: torch.dtype
    ) -> str | None:
        """Where some rows of the batch have other losses or gradients than their records alone, in words; None: nowhere.

        Parts and losses, shape (len(rows),), are of `rows`, places in the batch; `precision` is the coarsest type that layers computed in.
        """
        if isinstance(losses, Tensor) and (message := self._other_loss(losses, rows, precision)):
            return message
        for record in self._records:
            if record in rows:
                row = rows.index(record)
                gradient, _ = self._before[record]
                off = self._off(
                    gradient,
                    lambda parameter, row=row: parts[parameter].one(row) if parameter in parts else torch.zeros_like(parameter),
                    precision,
                )
                if off:
                    return "the gradient of record {} in {} is off by {:.3g} from its own alone, of norm {:.3g}".format(record, *off)
        return None

    def _off(
        self, gradient: Gradient, batch_gradient: Callable[[nn.Parameter], Tensor], precision: torch.dtype | None
    ) -> tuple[str, float, float] | None:
        """The first parameter in which a record has another gradient than alone, by how much, and the norm of that; None: there is none.

        What cannot be measured alone is not compared. Of batches of one shape no `precision` is given: they are rounded alike.
        """
        whole = _norm(gradient.values())
        for parameter, isolated in gradient.items() if whole < float("inf") else ():
            in_batch = batch_gradient(parameter)
            in_batch = in_batch if in_batch.is_sparse else _by_rows(in_batch.reshape(isolated.shape))
            error, size = _norm([added(in_batch, -isolated)]), _norm([isolated])
            alike = 10 * ALLOWED_IN_SHAPE[parameter.dtype]
            if not error <= (alike if precision is None else ALLOWED[coarser(parameter.dtype, precision)]) * (size + 0.01 * whole):
                return self._names[parameter], error, size
        return None

    def _other_loss(self, losses: Tensor, rows: Sequence[int], precision: torch.dtype) -> str | None:
        compared = [record for record in self._records if record in rows]
        if not compared:
            return None
        isolated = torch.cat([self._before[record][1] for record in compared])
        return _differing(compared, losses[[rows.index(record) for record in compared]], isolated, losses, precision, "alone")

    def apart(
        self, losses: Tensor | MeanLoss, precision: torch.dtype, recompute: Any = None, *, side_by_side: bool = False, items: bool = False
    ) -> str | None:
        """Where the losses of a batch are others than those of its random halves, in words; None: nowhere, or it has no halves.

        Losses are of shape (B,), or one number, a mean over `items` or records, whose sums are compared; `recompute` computes those of the
        halves, and `precision` is the coarsest type that layers computed in.
        """
        order, sums = sample(self._usable, len(self._usable)), list[Tensor]()
        halves = [order[: len(order) // 2], order[len(order) // 2 :]]
        for half in halves if isinstance(losses, Tensor) else (*halves, order):
            if half and (len(half) < len(losses) if isinstance(losses, Tensor) else len(order) > 3):
                rows = rows_of(self._batch, half)
                half_losses = self.same_draws(len(half), partial(recompute or self._losses, rows), side_by_side=side_by_side)
                if isinstance(losses, MeanLoss) or isinstance(half_losses, MeanLoss):
                    sums += [half_losses.total(items=items)[0].detach()] if isinstance(half_losses, MeanLoss) else []
                elif message := _differing(half, losses[half], half_losses.detach(), losses, precision, "in half of it"):
                    return message
        if len(sums) == 3 and (sums[0] + sums[1] - sums[2]).abs() > ALLOWED[coarser(sums[2].dtype, precision)] * sum(map(abs, sums)):
            return f"the sum of its losses is {float(sums[2]):.6g}, and {float(sums[0] + sums[1]):.6g} in two halves"
        return None

    def refuse_mixed(self, precision: torch.dtype) -> None:
        """Refuse a model in which a record's loss depends on the others."""
        records = records_of(self._batch)

        def computed() -> Tensor | MeanLoss:
            with torch.no_grad():
                return self._losses(self._batch)

        message = ""
        for layout in (False, True):
            try:
                together = self.same_draws(records, computed, side_by_side=layout)
                if isinstance(together, MeanLoss):  # which is of one record, where it is computed alone
                    return
                message = self._other_loss(together, range(records), precision) or self.apart(together, precision, side_by_side=layout)
            except FAILURES:  # it takes no batch, or none without gradients
                return
            if not message:
                return
        raise InputError(
            f"{message}: it depends on the other records.",
            source="the check of a batch against its records alone",
            remedy=f"{BATCH_STATISTICS} Mask padding in averages and attention; leave out what is computed of a whole batch.",
        )

    def refuse_padded(self, precision: torch.dtype) -> None:
        """Refuse a model in which a record's gradient depends on how far the others have it padded: of random ones with nothing dropped,
        where what else they draw is the same at both lengths.
        """
        for record in self._padded:
            rows = [self._records[record], rows_of(self._batch, [record])]
            isolated, padded = self._undropped(rows) if self.random else (self._before[record][0], self._alone(rows[1])[0])
            if isolated and (off := self._off(isolated, padded.__getitem__, precision)):
                name, error, size = off
                raise InputError(
                    f"the gradient of record {record} in {name} depends on how far its batch is padded: off by {error:.3g} of {size:.3g}.",
                    source="the check of a batch against its records alone, each at its own length",
                    remedy="mask padding in averages, attention and losses, or pad all records to one length.",
                )

    def _undropped(self, both: Sequence[Any]) -> list[Gradient]:
        """The gradients of a record at two lengths; empty where it draws others, which may depend on the length, but by dropout."""
        gradients, end = list[Gradient](), None
        for rows in both:
            self._chance.rewind()
            draws = SameDraws(1, dropping=False)
            with draws, without_hidden_draws(self._model.modules()), _sparse_tables(self._model):
                gradient, _ = gradient_of(self._losses, list(self._names), rows_of(rows, [0]), reached=self._reached)
            gradients.append({parameter: _by_rows(tensor) for parameter, tensor in gradient.items()})
            differs = draws.calls or (end is not None and end.drew())
            end = Chance()
            self._chance.rewind()
            if differs:
                return [{}, {}]
        return gradients

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
        if changed_attributes := self._attributes.changed():
            with self._attributes.fresh():  # not of the first record that the model was given
                self._refuse_other(list(self._before)[-1], f"where the model has seen no record yet: it keeps {changed_attributes[0]}")

    def _refuse_other(self, record: int, when: str) -> None:
        if off := self._off(self._before[record][0], self._alone(self._records[record])[0].__getitem__, None):
            raise HypothesisError(
                f"record {record}: its gradient in {off[0]} {when} is off by {off[1]:.3g} of {off[2]:.3g}: something keeps what "
                "it saw, or is random.",
                source="the check of a batch: a record alone before and after the others",
                remedy="take out hidden states, memory banks and running means; draw random numbers from torch's global generator.",
            )


def _differing(
    records: Sequence[int], in_batch: Tensor, isolated: Tensor, losses: Tensor, precision: torch.dtype, where: str
) -> str | None:
    """Where losses of records are others in their batch than alone, in words; a number that is none alone is a mixture as well."""
    finite = losses[losses.isfinite()]
    allowed = ALLOWED[coarser(losses.dtype, precision)] * (float(finite.abs().max()) if len(finite) else 0.0)
    differs = ((in_batch - isolated).abs() > allowed) | (in_batch.isfinite() & ~isolated.isfinite())
    if not bool(differs.any()):
        return None
    first = int(differs.nonzero()[0, 0])
    return f"the loss of record {records[first]} is {float(in_batch[first]):.6g} in its batch and {float(isolated[first]):.6g} {where}"


def _norm(tensors: Any) -> float:
    dense = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in tensors]
    return float(torch.stack([torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in dense]).norm())


@contextmanager
def _sparse_tables(model: nn.Module) -> Generator[None]:
    """Within: a large table's gradient is made of the rows that are looked up alone."""
    tables: list[Any] = [
        module
        for module in model.modules()
        if type(module) in (nn.Embedding, nn.EmbeddingBag)
        and isinstance(weight := module.weight, nn.Parameter)
        and weight.requires_grad
        and weight.numel() >= _LARGE
        and not (module.sparse or is_shard(weight) or getattr(module, "mode", None) == "max")
    ]
    try:
        for table in tables:
            table.sparse = True
        yield
    finally:
        for table in tables:
            table.sparse = False


def _by_rows(gradient: Tensor) -> Tensor:
    """A record's gradient in a large table by the rows that it looks up; any other as it is."""
    if gradient.is_sparse or gradient.dim() != 2 or gradient.numel() < _LARGE:
        return gradient
    rows = (gradient != 0).any(1).nonzero()[:, 0]
    return gradient if len(rows) > len(gradient) // 4 else of_rows(rows, gradient[rows], len(gradient))
