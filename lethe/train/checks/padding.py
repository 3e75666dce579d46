"""Check of padded batches: a record's gradient must be the same when it is collated and run alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import grad

from lethe.errors import InputError
from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.checks.replaced_batch import few_of
from lethe.train.clipping.checks.surroundings import eagerly
from lethe.train.core.comparison import ALLOWED, FAILURES, arithmetic, chance, coarser, first_line, sample
from lethe.train.model_state.outputs import precision_of
from lethe.train.model_state.quiet import Quiet
from lethe.train.model_state.undisturbed import undisturbed

Numbers = Callable[[], Sequence[Tensor] | Tensor]
"""Computes the model anew: one number for each of some records."""


def among_others(records: list[int], size: int) -> list[int]:
    """Records of a padded batch, first, and some others of it, as far as it is padded: that the rest makes no difference to them where they
    are all padded alike is asked by other checks.

    Args:
        records: places in the batch.
        size: of the batch.
    """
    others = [place for place in range(size) if place not in records]
    return [*records, *sample(others, max(1, few_of(size) - len(records)))]


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
            in_batch: a number, such as the loss, for each record in `alone`, in their order, of the batch or of `among_others`.
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
                expected: dict[int, Sequence[Tensor | None]] = {}
                for record, single in alone.items():
                    rewind()
                    mode.begin()
                    expected[record] = grad(single()[0], list(trained), allow_unused=True)
                if drew:
                    self._say("the model is random")
                    return
                # One backward pass through the batch for all of them; each by itself only where they disagree.
                chances = _chances(expected)
                weighed = torch.stack([chances[record] * number for record, number in zip(alone, numbers, strict=True)]).sum()
                told = grad(weighed, list(trained), retain_graph=True, allow_unused=True)
                if _gap(told, _summed(expected, chances), trained, coarsest(), of=len(alone)) is None:
                    return
                for record, number in zip(alone, numbers, strict=True):
                    told = grad(number, list(trained), retain_graph=True, allow_unused=True)
                    if (gap := _gap(told, expected[record], trained, coarsest())) is not None:
                        raise _depends(record, *gap)
            except FAILURES as error:
                if isinstance(error, InputError):
                    raise
                self._say(f"a record could not be run alone: {first_line(error)}")

    def _say(self, reason: str) -> None:
        if self.missing is None:
            self.missing = reason
            warnings.warn(f"records of a padded batch could not be compared with the same records alone: {reason}.", stacklevel=4)


def _chances(gradients: Mapping[int, Sequence[Tensor | None]]) -> dict[int, float]:
    """Weights by which each record's gradient has a norm in [0.5, 1], at random: no errors cancel by design, and none is lost in others."""
    norms = {record: sum(float(one.double().square().sum()) for one in own if one is not None) ** 0.5 for record, own in gradients.items()}
    return {record: chance.uniform(0.5, 1.0) / (norm if 0 < norm < float("inf") else 1.0) for record, norm in norms.items()}


def _summed(gradients: Mapping[int, Sequence[Tensor | None]], weights: Mapping[int, float]) -> list[Tensor | None]:
    found: list[Tensor | None] = []
    for own in zip(*gradients.values(), strict=True):
        there = [weight * gradient for weight, gradient in zip(weights.values(), own, strict=True) if gradient is not None]
        found.append(torch.stack(there).sum(0) if there else None)
    return found


def _gap(
    told: Sequence[Tensor | None], expected: Sequence[Tensor | None], trained: Mapping[Tensor, str], precision: torch.dtype, *, of: int = 1
) -> tuple[str, float, float] | None:
    """The first parameter whose gradients differ by more than rounding, by how much, and their size; of a sum of records, by no more than
    each of them may."""
    whole = sum(float(gradient.double().square().sum()) for gradient in expected if gradient is not None) ** 0.5
    if not whole < float("inf"):  # nor is it NaN
        return None
    for (parameter, name), one, other in zip(trained.items(), told, expected, strict=True):
        first, second = (torch.zeros_like(parameter) if gradient is None else gradient.detach() for gradient in (one, other))
        size, error = float(second.double().norm()), float((first.double() - second.double()).norm())
        if not error <= ALLOWED[coarser(parameter.dtype, precision)] / of * (size + 0.01 * whole):
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
