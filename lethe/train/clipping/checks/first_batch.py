"""Self-check of a model's memory: outputs must not depend on which records the model saw before."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.errors import HypothesisError
from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.checks.replaced_batch import Given, careful_numbers
from lethe.train.core.comparison import ALLOWED_IN_SHAPE, FAILURES, close, first_line
from lethe.train.model_state.outputs import has_rows
from lethe.train.model_state.quiet import Quiet
from lethe.train.model_state.undisturbed import Rewind, undisturbed

_TIMES = 4  # that a copy is asked anew before what differs counts as remembered
_GLANCED = 2  # records that are shown with gradients disabled, before the others


class FirstBatch:
    """A copy of a model that has seen no data is shown a few other records in place of the first batch, and then asked of a few of it.

    Its outputs must be those that the model itself gives after the batch, and so must the gradients of these records, which tell of what
    lies before a head of zeros as well. Where they are not, two copies decide, which are called equally often: one is shown the few, and
    the other one others in their place; and then all of the batch, since some models keep something of large batches only. The copies
    draw the same random numbers, so that a model which keeps what it drew passes, as one does that keeps what follows from shapes.

    What a model keeps somewhere else than in itself, or fits at a later batch, is not seen.

    Args:
        model: whose parameters the copies share.

    Attributes:
        reason: why nothing could be compared; None if all agreed, or it was not asked yet.
        over: whether all agreed.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._fresh: nn.Module | None = None
        self.reason: str | None = None
        self.over = False

    def begin(self) -> None:
        """Before a batch: copy the model, if it has not been."""
        if self.over or self._fresh is not None or self.reason is not None:
            return
        try:
            self._fresh = _copied(self._model)
        except Exception as error:  # whatever a module's own attributes make of being copied
            self.reason = f"the model cannot be copied: {first_line(error)}"

    def check(self, few: Given, batch: Given, output: Any, rewind: Rewind, mode: Quiet) -> None:
        """Compare a copy with the model, once.

        Args:
            few: some records of the batch.
            batch: all of them.
            output: what the model gave of them right after the batch, with gradients enabled.
            rewind, mode: of the surrounding calls.
        Raises:
            HypothesisError: the model remembers records.
        """
        if self.over or self._fresh is None:
            return
        if _alike(batch):
            return  # its records are all alike; another batch may tell
        self.reason = None
        try:
            seen = _told(self._model, output, few.records)
            # The model and its copies share what lies outside of both, such as a closure: it is put back in between.
            rewind.model()
            other = self._shown(few, _others(few), rewind, mode)
            rewind.model()
            if not _agree(other, seen, few.precision):
                for shown in (few, batch):
                    expected, told = (self._shown(few, before, None, mode) for before in ([shown], _others(shown)))
                    if not _agree(told, expected, few.precision):
                        again = self._again(few, shown, told, expected, mode)
                        if not (_rounded(again, expected, few.precision) and _rounded(told, expected, few.precision)):
                            self.reason = "the model's outputs or gradients are not the same twice"
                            return
        except FAILURES as error:
            self.reason = f"the model could not be called again: {first_line(error)}"
            return
        self.over, self._fresh = True, None

    def _again(self, few: Given, shown: Given, told: list[Tensor], expected: list[Tensor], mode: Quiet) -> list[Tensor]:
        """What a copy that was shown the few gives when it is asked anew, as it was asked for `expected`.

        A GPU may add in another order each time: of a gradient that is 0 but for rounding, such as that of a bias of keys, nothing then
        stays the same, or something does by chance.

        Raises:
            HypothesisError: what was `told` after others differs from it where it is the same each time.
        """
        steady = list(range(len(expected)))
        for _ in range(_TIMES):
            again = self._shown(few, [shown], None, mode)
            if not _shaped(told, expected) or not _shaped(again, expected):
                raise _remembers()
            steady = [place for place in steady if _agree([again[place]], [expected[place]], few.precision)]
            if _agree([told[place] for place in steady], [expected[place] for place in steady], few.precision):
                return again
        raise _remembers()

    def _shown(self, few: Given, before: Iterable[Given], rewind: Rewind | None, mode: Quiet) -> list[Tensor]:
        """A copy's outputs and gradients for a few records, after the first of `before` that it accepts.

        Without a rewind of the surroundings, it gets one of its own: its generators are then set back before each call, too.
        """
        assert self._fresh is not None
        for place, shown in enumerate(before):
            model = _copied(self._fresh)
            own = undisturbed(model, (few.args, few.kwargs), skipped=few.tensors()) if rewind is None else nullcontext(rewind)
            with own as back:
                try:
                    # A list is of what the model was given in earnest, and what comes second is no further away.
                    with nullcontext() if place or isinstance(before, list) else careful_numbers(model, few):
                        # As in training, with gradients: some models look where these are enabled only.
                        with suppress(*FAILURES):  # a model of larger batches
                            _called(model, shown.taken(list(range(min(_GLANCED, shown.records)))), back, mode)
                        _called(model, shown, back, mode, gradients=True)
                except FAILURES:
                    continue
                return _told(model, _called(model, few, back, mode, gradients=True), few.records)
        raise ValueError("it does not accept them, or others in their place")


def _remembers() -> HypothesisError:
    return HypothesisError(
        "the model makes other outputs or gradients of the same records when it was shown others first: it keeps what it saw, of "
        "which nothing is clipped or noised.",
        source="the clipper's self-check: a layer that fits itself to its first batch, or otherwise remembers records, in an "
        "attribute of its own",
        remedy="take that layer out, or let public data pass through it before training; build the model anew: this one has seen "
        "the batch.",
    )


def _copied(model: nn.Module) -> nn.Module:
    """A copy with the same parameters, and everything else its own."""
    own: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                own[id(value)] = value.detach().clone()  # torch copies leaves only
    return copy.deepcopy(model, own)


def _others(given: Given) -> Iterator[Given]:
    """Half the records twice, far from where they are; and where they are. Not in another order only, which no mean would show."""

    def halved(entry: Tensor) -> Tensor:
        return entry[given.records - 1 - torch.arange(given.records, device=entry.device) // 2]

    yield given.mapped(lambda entry: _far(halved(entry)))
    yield given.mapped(halved)


def _far(entry: Tensor) -> Tensor:
    return 1 - 3 * entry if entry.is_floating_point() else entry


def _alike(given: Given) -> bool:
    """Whether the first of `_others` are the records themselves; most are told by the first record."""
    last = given.records - 1
    return all(torch.equal(entry[place], _far(entry[last - place // 2])) for entry in given.rows() for place in range(given.records))


def _called(model: nn.Module, given: Given, rewind: Rewind, mode: Quiet, *, gradients: bool = False) -> Any:
    rewind()
    mode.begin()
    with torch.set_grad_enabled(gradients):
        return given.called(model)


def _told(model: nn.Module, output: Any, records: int) -> list[Tensor]:
    """The outputs, and the gradients of a sum in which each of their numbers counts differently: one row for each parameter that gets any,
    so that they compare by themselves."""
    entries = list(output.values()) if isinstance(output, dict) else tree_flatten(output)[0]
    found = [entry for entry in entries if has_rows(entry, records) and entry.is_floating_point()]
    outputs = [entry.detach() for entry in found]
    flat = [entry.flatten() for entry in found if entry.requires_grad]
    if not flat:
        return outputs
    total = torch.stack([(entry * torch.linspace(0.5, 1.5, len(entry)).to(entry)).sum().double() for entry in flat]).sum()
    # Others may stand in a parameter's place for the time being.
    trained: dict[Tensor, str] = {own: name for name, own in model.named_parameters() if own.requires_grad and own.is_leaf}
    with torch.enable_grad(), unaccumulated(trained):
        gradients = torch.autograd.grad(total, list(trained), allow_unused=True)
    return [*outputs, *(torch.zeros(1) if gradient is None else gradient.detach().to_dense()[None] for gradient in gradients)]


def _shaped(one: list[Tensor], other: list[Tensor]) -> bool:
    return [entry.shape for entry in one] == [entry.shape for entry in other]


def _rounded(again: list[Tensor], expected: list[Tensor], precision: torch.dtype) -> bool:
    """Whether what was not the same twice differs by no more than rounding of the largest numbers among all."""
    largest = torch.stack([entry.abs().max().cpu().double() for entry in expected if entry.numel()])
    pairs = zip(again, expected, strict=True)
    return all(bool(close(one, other, largest.to(other), ALLOWED_IN_SHAPE, precision).all()) for one, other in pairs)


def _agree(told: list[Tensor], expected: list[Tensor], precision: torch.dtype) -> bool:
    return _shaped(told, expected) and all(
        bool(close(one, other, other, ALLOWED_IN_SHAPE, precision).all()) for one, other in zip(told, expected, strict=True)
    )
