"""Check of padded batches: a record's gradient must be the same when it is collated and run alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import grad

from lethe.errors import InputError
from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.checks.forward_checks import precision_of
from lethe.train.clipping.checks.surroundings import eagerly
from lethe.train.core.comparison import ALLOWED, FAILURES, arithmetic, coarser, first_line
from lethe.train.model_state.quiet import Quiet
from lethe.train.model_state.undisturbed import undisturbed

Numbers = Callable[[], Sequence[Tensor] | Tensor]
"""Computes the model anew: one number for each of some records."""


class AloneCheck:
    """Compares gradients of records in a batch that was padded to its longest with those of the records alone.

    Asked after a batch was used and before its step is taken: the model has seen the batch by then, and is still what it was.

    Args:
        model: whose trained parameters' gradients are compared.

    Attributes:
        missing: why a comparison could not be made; None if all were.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.missing: str | None = None

    def require(self, in_batch: Numbers, alone: Mapping[int, Numbers]) -> None:
        """Refuse a record whose gradient depends on how far its batch is padded.

        Args:
            in_batch: a number, such as the loss, for each record in `alone`, in their order, of the whole batch.
            alone: the same number of each alone, by its place in the batch.
        Raises:
            InputError: they have other gradients.
        """
        trained: dict[Tensor, str] = {parameter: name for name, parameter in self._model.named_parameters() if parameter.requires_grad}
        # Where a model casts by itself, as accelerate makes it, only its layers show what they compute in.
        precision = precision_of(self._model, arithmetic(next(iter(trained)).device))
        with (
            torch.enable_grad(),
            eagerly(),
            undisturbed(self._model) as rewind,
            Quiet() as mode,
            unaccumulated(trained),
            precision as coarsest,
        ):
            try:
                numbers = list(in_batch())
                drew = rewind.drew()
                for (record, single), number in zip(alone.items(), numbers, strict=True):
                    rewind()
                    mode.begin()
                    told = grad(number, list(trained), retain_graph=True, allow_unused=True)
                    expected = grad(single()[0], list(trained), allow_unused=True)
                    if drew:
                        self._say("the model is random")
                    elif (gap := _gap(told, expected, trained, coarsest())) is not None:
                        raise _depends(record, *gap)
            except FAILURES as error:
                if isinstance(error, InputError):
                    raise
                self._say(f"a record could not be run alone: {first_line(error)}")

    def _say(self, reason: str) -> None:
        if self.missing is None:
            self.missing = reason
            warnings.warn(f"records of a padded batch could not be compared with the same records alone: {reason}.", stacklevel=4)


def _gap(
    told: Sequence[Tensor | None], expected: Sequence[Tensor | None], trained: Mapping[Tensor, str], precision: torch.dtype
) -> tuple[str, float, float] | None:
    """The first parameter whose gradients differ by more than rounding, by how much, and their size."""
    whole = sum(float(gradient.double().square().sum()) for gradient in expected if gradient is not None) ** 0.5
    if not whole < float("inf"):  # nor is it NaN
        return None
    for (parameter, name), one, other in zip(trained.items(), told, expected, strict=True):
        first, second = (torch.zeros_like(parameter) if gradient is None else gradient.detach() for gradient in (one, other))
        size, error = float(second.double().norm()), float((first.double() - second.double()).norm())
        if not error <= ALLOWED[coarser(parameter.dtype, precision)] * (size + 0.01 * whole):
            return name, error, size
    return None


def _depends(record: int, name: str, error: float, size: float) -> InputError:
    return InputError(
        f"the gradient of record {record} in {name} is off by {error:.3g} from that of the record alone, of norm {size:.3g}: it depends "
        "on how far its batch is padded, and so on the others' lengths.",
        source="the check of padded batches: the record in its batch against the record collated and run alone",
        remedy="mask the padding where a record's numbers are averaged, summed, normalised or attended to, in the model and in the loss; "
        "or pad every record to one length that is fixed beforehand.",
    )
