"""How the gradients of a model's records are computed: by the rules of its layers, by vmap of the model, or one record after another.
`Clipper` asks for them with a `Way`. Rows are what the model sees; a unit (a record or a user) has one or several, which are added.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clip.fast import LAYOUTS, Choices, Gradients, Recording
from lethe.train.clip.isolated import Losses, MeanLoss, by_vmap, gradient_of, records_of, rows_of
from lethe.train.clip.parts.outer_products import Memory
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.registry import Layer, layers_of, quantised, refuse_model, settle
from lethe.train.clip.shared import Shared
from lethe.train.clip.sums import Arriving
from lethe.train.core.comparison import coarser

FAST, VMAP, ALONE = "fast", "vmap", "alone"

# Bytes of gradients that are kept, by default: what a step without privacy holds besides is usually far more.
_KEPT, _KEPT_ON_GPU = 2**23, 2**26

# Numbers of gradients that vmap forms at a time: 64 MiB of float32; on a GPU 1 GiB.
_FORMED, _FORMED_ON_GPU = 2**24, 2**28


class Way(NamedTuple):
    """How the gradients of a batch's records are computed: "fast", with one of `fast.LAYOUTS`, "vmap" or "alone".

    A loss that is one number is taken for a mean over `items`, or over records. `shared`: what is the same for all records is followed, see
    `Shared`.
    """

    name: str
    layout: str = LAYOUTS[0]
    items: bool = True
    shared: bool = False


class RecordGradients:
    """The gradients of the records of batches in a model's trained parameters.

    Attributes:
        names: of the trained parameters.
        state: which parameters are trained, and which modules are in training mode.
        precision: the coarsest type of number that layers have computed in.
        ambiguous: whether another layout of the fast way would have made a difference to the last batch.
        reached: the parameters that the losses were seen to depend on, be it with a gradient of 0.
        uneven: whether its loss was one number, of records that have unequally many items.
        choices: of the last batch that went the fast way, see `fast.Choices`.
        known: the choices of batches that were checked.
    """

    def __init__(self, model: nn.Module, losses: Losses, gradient_memory: int | None) -> None:
        self._model, self._losses, self._gradient_memory = model, losses, gradient_memory
        self._modules: list[nn.Module] = []
        self._layers: list[Layer] = []
        self._quantised = quantised(model)
        self.names: dict[nn.Parameter, str] = {}
        self.state: tuple[object, ...] = ()
        self.precision, self.ambiguous, self.uneven = torch.float64, True, False
        self.choices: Choices = {}
        self.known: Choices = {}
        self.reached: set[nn.Parameter] = set()
        self.survey()

    def survey(self) -> bool:
        """Look at the model anew where other parameters are trained, or other modules are in training mode; whether that was so."""
        settle(self._quantised)
        if self.state == self._told():
            return False
        refuse_model(self._model)
        self._modules = list(self._model.modules())
        self.state = self._told()
        self.names = {parameter: name for name, parameter in self._model.named_parameters() if parameter.requires_grad}
        self._layers, self.known = layers_of(self._model), {}
        for parameter in self._model.parameters():
            if parameter.is_floating_point():
                self.precision = coarser(self.precision, parameter.dtype)
        self._device = next(iter(self.names)).device
        default = _KEPT if self._device.type == "cpu" else _KEPT_ON_GPU
        self._limit = default if self._gradient_memory is None else self._gradient_memory
        return True

    def unseen(self, *, layers: bool) -> bool:
        """Whether a call of the last batch, of `layers` too or of the loss alone, was taken in a way in which none that was checked was."""
        return any(self.known.get(call) != choice for call, choice in self.choices.items() if layers or call[0] is None)

    def same(self, way: Way, candidate: Way) -> bool:
        """Whether another fast way would have made no difference to the last batch."""
        alike = (candidate.layout != way.layout and not self.ambiguous) or (candidate.items != way.items and not self.uneven)
        return alike and candidate.shared == way.shared

    def _told(self) -> tuple[object, ...]:
        trained, training = list[int](), list[bool]()
        for module in self._modules:
            training.append(module.training)
            for parameter in module._parameters.values():
                if parameter is not None and parameter.requires_grad:
                    trained.append(id(parameter))
        return tuple(trained), tuple(training)

    def together(
        self, way: Way, batch: Any, records: int, units: Sequence[Sequence[int]] | None, arriving: Arriving | None = None
    ) -> tuple[Gradients, Tensor | MeanLoss]:
        """One forward and one backward pass for all records, and the losses, detached.

        `units`: of whose rows the mean loss is differentiated; `arriving` is handed the gradients as they come, instead of the caller.
        """
        if way.shared and records == 1:  # all is its own
            _, gradients, (_, losses) = next(self.apart(Way(ALONE), batch, [[0]]))
            return gradients, losses
        recording = Recording(records, way.layout, Memory(self._limit), self._device, arriving, self.known)
        if way.shared:
            recording.shared = Shared(recording, self._model, self.names, batch)
        self.ambiguous, self.uneven = True, False
        try:
            with recording.running(self._layers, list(self.names)), recording.shared or nullcontext():
                losses = self.losses(batch, records)
                if isinstance(losses, MeanLoss):
                    self.uneven = losses.uneven
                    recording.choices[None, int(self.uneven)] = "mean", ""
                    total, factors = losses.total(items=way.items)
                    shares = None if units is None else _shares(units, losses.counts.double())
                    recording.factors = shares if factors is None else factors if shares is None else factors * shares
                else:
                    total = (losses if units is None else losses * _shares(units, losses)).sum()
                kind = total.device.type
                with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
                    parts = recording.gradients(total)
        finally:
            self.ambiguous, self.choices = recording.ambiguous, recording.choices
        self.reached.update(parts if arriving is None else arriving.sums)
        if recording.precision != torch.float64:
            self.precision = coarser(self.precision, recording.precision)
        return parts, MeanLoss(losses.value.detach(), losses.counts) if isinstance(losses, MeanLoss) else losses.detach()

    def losses_of(self, way: Way, batch: Any) -> Tensor | MeanLoss:
        """As a fast way computes them: which knows what is the same for all records, and drawn once."""
        return self.together(way, batch, records_of(batch), None)[1]

    def apart(self, way: Way, batch: Any, groups: list[list[int]]) -> Iterator[tuple[list[int], Gradients, tuple[Tensor, Tensor]]]:
        """Each record by itself: rows, the gradients of their units, and the losses of units and of rows."""
        trained = list(self.names)
        if way.name == VMAP:
            numbers = sum(parameter.numel() for parameter in trained)
            size = max(1, (_FORMED if self._device.type == "cpu" else _FORMED_ON_GPU) // max(1, numbers))
            for units in _chunks(groups, size):
                rows = [row for unit in units for row in unit]
                parts, values = by_vmap(self._model, self.losses, trained, rows_of(batch, rows))
                self.reached.update(() if self.reached else trained)  # it gives 0 of what was not reached, too
                values = values.detach()
                means: Gradients = {parameter: MaterialisedGradients(_means(part.rows(), units)) for parameter, part in parts.items()}
                yield rows, means, (_means(values, units), values)
            return
        for unit in groups:
            summed, values = None, []
            for row in unit:
                gradients, value = gradient_of(self.losses, trained, rows_of(batch, slice(row, row + 1)), reached=self.reached)
                values.append(value)
                gradient = {parameter: tensor.to_dense() for parameter, tensor in gradients.items()}
                summed = gradient if summed is None else {p: tensor.add_(gradient[p]) for p, tensor in summed.items()}
            assert summed is not None
            losses = torch.cat(values)
            unit_gradients: Gradients = {
                parameter: MaterialisedGradients(tensor[None].div_(len(unit))) for parameter, tensor in summed.items()
            }
            yield unit, unit_gradients, (losses.mean(0, keepdim=True), losses)

    def losses(self, batch: Any, records: int | None = None) -> Tensor | MeanLoss:
        """The losses of a batch, of so many records where that is known; of a record alone always a tensor."""
        losses, records = self._losses(batch), records_of(batch) if records is None else records
        if isinstance(losses, MeanLoss):
            if records > 1:
                return losses
            losses = losses.value.reshape(1)
        if isinstance(losses, Tensor) and losses.dim() == 2 and losses.shape[1] == 1:
            losses = losses[:, 0]
        if not isinstance(losses, Tensor) or losses.shape != (records,) or not losses.is_floating_point():
            got = f"shape {tuple(losses.shape)}, {losses.dtype}" if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                f"losses: got {got}; it needs shape ({records},), one loss a record: a mean hides the records.",
                source="the loss of a batch",
                remedy='compute the loss with reduction="none", and average over positions within a record only: '
                "losses.reshape(records, -1).mean(1).",
            )
        return losses


def _shares(units: Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """1 over the number of rows of each row's unit."""
    shares = torch.zeros(len(like), dtype=torch.float64)
    for rows in units:
        shares[list(rows)] = 1 / len(rows)
    return shares.to(like)


def _means(rows: Tensor, units: Sequence[Sequence[int]]) -> Tensor:
    """The mean over the rows of each unit; a unit's rows follow one another."""
    return rows if len(rows) == len(units) else torch.stack([unit_rows.mean(0) for unit_rows in rows.split([len(unit) for unit in units])])


def _chunks(groups: list[list[int]], size: int) -> Iterator[list[list[int]]]:
    """Units together, of up to so many rows, or one."""
    chunk: list[list[int]] = []
    for unit in groups:
        if chunk and sum(map(len, chunk)) + len(unit) > size:
            yield chunk
            chunk = []
        chunk.append(unit)
    if chunk:
        yield chunk
