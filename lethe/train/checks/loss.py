"""Check of the loss: each record's loss must not depend on the other records of its batch."""

from __future__ import annotations

import dis
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from lethe.errors import InputError
from lethe.train.checks.record_losses import mean_within, refuse_table, without_mean
from lethe.train.clipping import Clipper
from lethe.train.clipping.behaviour import behaviour_of
from lethe.train.clipping.checks.graphs import nodes_of
from lethe.train.clipping.checks.replaced_batch import with_nothing
from lethe.train.clipping.checks.shared_numbers import SharedNumbers, shared_numbers
from lethe.train.clipping.checks.surroundings import eagerly
from lethe.train.core.comparison import ALLOWED, ALLOWED_IN_SHAPE, FAILURES, arithmetic, chance, close, coarser, first_line, halves, sample
from lethe.train.model_state.outputs import has_rows, one_loss_each
from lethe.train.model_state.undisturbed import Rewind, undisturbed

LossFunction = Callable[[Any, Any], Tensor]
"""(outputs, targets) -> one loss a record, shape (B,) or (B, 1), or a loss of PyTorch's with its mean; targets are a
tensor, or of records with fields the batch as a mapping."""

_CHANGES = 8  # batches with another shared number of which each is looked at
_ALONE = 8  # records whose loss is computed alone, which costs little of the batch's
_AGAIN = 4  # records that a loss is asked of twice, with others in between
_FEWER = 8  # losses of so few cost nothing to compute in all company
_ROUNDS = 2  # of other company, where the loss of a record alone tells nothing
_RAISE = dis.opmap["RAISE_VARARGS"]


_REMEDY_OF_PARTS = (
    "take out of the outputs what the loss needs: lambda outputs, targets: loss(outputs.logits, targets); of a model of transformers, "
    "lethe.integrations.transformers.record_losses(model) is the loss of each record."
)


class CheckedLoss:
    """A loss function that is compared with itself, so that no record's loss depends on the others even by detached values, nor on others
    that it was asked of before.

    What the clipper asks of gradients and of the model it cannot ask of a loss, which it sees the values of only.

    Args:
        loss: (outputs, targets) -> one loss a record.
        clipper: whose checked batches are checked here as well, and besides the first batch of a loss, and of one that was changed.
    Raises:
        InputError: a class of losses in the place of one.
    """

    def __init__(self, loss: LossFunction, clipper: Clipper) -> None:
        if isinstance(loss, type):
            raise InputError(f"loss: got the class {loss.__name__}; it needs a function.", remedy=f'{loss.__name__}(reduction="none").')
        self._loss, self._clipper = loss, clipper
        self._unreduced = without_mean(loss)
        self._missing: str | None = None
        self._passed: Hashable = None
        self._numbers: SharedNumbers | None = None
        self._changes = 0

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """The losses.

        Raises:
            InputError: a record's loss depends on the other records of its batch.
        """
        with eagerly():
            return self._checked(outputs, targets)

    def _checked(self, outputs: Any, targets: Any) -> Tensor:
        if not self._clipper.verifies:
            return self.losses(outputs, targets)
        behaviour = behaviour_of(self._loss)
        told = [entry for entry in tree_flatten(outputs)[0] if isinstance(entry, Tensor)]
        some = [entry.device for entry in (*told, *tree_flatten(targets)[0]) if isinstance(entry, Tensor)]
        devices = sorted({device.index or 0 for device in some if device.type == "cuda"})
        rewind, versions = Rewind(devices), [entry._version for entry in told]
        # What it writes into targets, as of labels that are not to count, is its own affair: it is asked again of them as they were.
        asked = _copied(targets) if self._clipper.checking or behaviour != self._passed else targets
        losses = self.losses(outputs, targets)
        anew = self._scaled_anew(losses, outputs)
        if not self._clipper.checking and behaviour == self._passed and not anew:
            return losses
        # As many as there are losses: targets may be flat, or hold what has no rows, such as weights of classes.
        if isinstance(losses, Tensor) and losses.dim() == 1 and _one_each(losses, len(losses)) and len(losses) > 1:
            if versions != [entry._version for entry in told]:
                raise _writes()
            detached = tree_map(lambda entry: entry.detach() if isinstance(entry, Tensor) else entry, outputs)
            with torch.no_grad(), torch.random.fork_rng(devices), undisturbed(self._loss):
                self._check_memory(detached, asked, losses.detach(), rewind)
                self._check(detached, asked, losses, rewind)
            self._passed = behaviour
        return losses

    def losses(self, outputs: Any, targets: Any) -> Any:
        """The losses, unchecked; of a mapping the function is given a copy, which it may take entries out of."""
        targets = dict(targets) if isinstance(targets, dict) else targets
        try:
            losses = (self._loss if self._unreduced is None else self._unreduced)(outputs, targets)
        except Exception as error:
            if not _does_not_fit(error):
                raise
            raise InputError(
                f"loss: of outputs, {_said(outputs)}, and targets, {_said(targets)}, it computes nothing: {type(error).__name__}: "
                f"{first_line(error)}",
                source="the loss function, on a batch's outputs and targets",
                remedy=_REMEDY_OF_PARTS if not isinstance(outputs, Tensor) else _of_targets(targets),
            ) from error
        refuse_table(losses, outputs, targets)
        return one_loss_each(losses) if self._unreduced is None else mean_within(losses, outputs)

    def _scaled_anew(self, losses: Any, outputs: Any) -> bool:
        """Whether a number that scales all losses alike is another one than in the last batch: a count of tokens, or a weight with a plan.

        Every such batch is asked at first, then those number 2, 4, 8 and so on among them.
        """
        if not isinstance(losses, Tensor) or losses.dim() != 1:
            return False  # whoever takes the losses says so
        inputs = [entry.grad_fn for entry in tree_flatten(outputs)[0] if isinstance(entry, Tensor) and entry.grad_fn is not None]
        before, self._numbers = self._numbers, shared_numbers(nodes_of(losses, inputs), len(losses))
        if before is None or before == self._numbers:
            return False
        self._changes += 1
        return self._changes <= _CHANGES or self._changes & (self._changes - 1) == 0

    @property
    def function(self) -> LossFunction:
        """The loss function."""
        return self._loss

    @property
    def missing(self) -> str | None:
        """What could not be checked of the loss; None if everything was."""
        return self._missing

    def said(self, checked: str | None) -> str | None:
        """The clipper's verdict, with what could not be checked of the loss."""
        if self._missing is None or checked is None:
            return checked
        return f"{'gradients and model checked' if checked == 'checked' else checked}; the loss was not: {self._missing}"

    def _check_memory(self, outputs: Any, targets: Any, told: Tensor, rewind: Rewind) -> None:
        """Ask of a few records again, with others in between: neither values nor gradients may have changed.

        The values in the batch are asked for again with other records in it, by `_check`.
        """
        few = sample(torch.isfinite(told).nonzero()[:, 0].tolist(), _AGAIN)
        outputs, targets = _mapped((outputs, targets), len(told), lambda entry: entry[few])
        companies = _companies(outputs, targets, told[few], list(range(len(few))), each=False)
        other = next((company[0] for company in companies), None)
        if other is None:
            return
        rewind()
        try:
            before = self._asked(outputs, targets)
            random = rewind.drew()
            self._asked(*other)
            rewind()
            after = self._asked(outputs, targets)
        except FAILURES:
            return  # it does not work on what was detached: `_check` says as much of a record alone
        if random or [entry.shape for entry in before] != [entry.shape for entry in after]:
            return
        precision = _precision(outputs, told)
        for one, expected in zip(after, before, strict=True):
            if not bool(close(one, expected, expected, ALLOWED_IN_SHAPE, precision).all()):
                raise InputError(
                    "loss: gives other losses, or gradients, of the same outputs when it was asked of other records in between: it keeps "
                    "what it saw, of which nothing is clipped with the record that it came from.",
                    source="the check of the loss: a batch before and after another one",
                    remedy="compute each record's loss from its own output and target; set a weight that changes over training from "
                    "outside, between the steps.",
                )

    def _asked(self, outputs: Any, targets: Any) -> list[Tensor]:
        """Losses, and the gradients of their sum in each output."""
        with torch.enable_grad():
            leaves = tree_map(lambda entry: _as_leaf(entry) if isinstance(entry, Tensor) else entry, outputs)
            losses = self.losses(leaves, _copied(targets))
            wanted = [entry for entry in tree_flatten(leaves)[0] if isinstance(entry, Tensor) and entry.requires_grad]
            found = torch.autograd.grad(losses.sum(), wanted, allow_unused=True) if wanted and losses.requires_grad else ()
        return [losses.detach(), *(torch.zeros(1) if gradient is None else gradient[None] for gradient in found)]

    def _check(self, outputs: Any, targets: Any, losses: Tensor, rewind: Rewind) -> None:
        records, told = len(losses), losses.detach()
        usable = torch.isfinite(told).nonzero()[:, 0].tolist()
        precision = _precision(outputs, told)
        reason: str | None = None
        for record in sample(usable, _ALONE):
            rewind()
            try:
                own, wanted = _mapped((outputs, targets), records, lambda entry, record=record: entry[record : record + 1])
                alone = self.losses(own, _copied(wanted))
            except FAILURES as error:
                reason = f"it does not accept a single record: {first_line(error)}"
                break
            if not isinstance(alone, Tensor) or alone.numel() != 1:
                reason = "of a single record it gives more than one number"
                break
            if rewind.drew():
                reason = "it is random"
                break
            if not bool(close(alone.reshape(1), told[record : record + 1], told, ALLOWED, precision).all()):
                raise _depends(record, "the loss of the record alone against that in the batch")
        told_alone = reason is None and len(told) > _FEWER
        rounds = [_companies(outputs, targets, told, usable, each=not told_alone) for _ in range(1 if reason is None else _ROUNDS)]
        for other, kept, where in chain.from_iterable(rounds):
            rewind()
            try:
                again = self.losses(other[0], _copied(other[1]))
            except FAILURES:
                continue  # NaN, or a class that is not there: the record alone says as much
            if _one_each(again, records):
                wrong = kept & torch.isfinite(told) & ~close(again, told, told, ALLOWED_IN_SHAPE, precision)
                if bool(wrong.any()):
                    raise _depends(int(wrong.nonzero()[0, 0]), f"the loss of the record in its batch against that {where}")
        if reason is not None and self._missing is None:
            self._missing = reason
            warnings.warn(f"fit could not check the loss: {reason}.", stacklevel=4)


def _precision(outputs: Any, losses: Tensor) -> torch.dtype:
    precision = arithmetic(losses.device)
    for entry in tree_flatten(outputs)[0]:
        precision = coarser(precision, entry.dtype) if isinstance(entry, Tensor) and entry.is_floating_point() else precision
    return precision


def _copied(targets: Any) -> Any:
    return tree_map(lambda entry: entry.detach().clone() if isinstance(entry, Tensor) else entry, targets)


def _does_not_fit(error: Exception) -> bool:
    """Whether it says that outputs and targets are not what the loss takes; what a loss raises on purpose, and short memory, is not."""
    if type(error) in (AttributeError, IndexError, KeyError, TypeError):
        return True
    if type(error) not in (NotImplementedError, RuntimeError, ValueError) or "can't allocate memory" in str(error):
        return False
    inner = error.__traceback__
    while inner is not None and inner.tb_next is not None:
        inner = inner.tb_next
    if inner is None or str(inner.tb_frame.f_globals.get("__name__")).partition(".")[0] == "torch":
        return inner is not None
    # Operations of PyTorch raise theirs from where they are called, with no `raise` there.
    return type(error) is not ValueError and inner.tb_frame.f_code.co_code[inner.tb_lasti] != _RAISE


def _said(given: Any) -> str:
    if isinstance(given, Tensor):
        return f"{str(given.dtype).removeprefix('torch.')} of shape {tuple(given.shape)}"
    return f"a mapping of {', '.join(map(str, given))}" if type(given) is dict else f"a {type(given).__name__}"


def _of_targets(targets: Any) -> str:
    if isinstance(targets, Mapping):
        return (
            "the loss is given the batch, and takes what it needs out of it: lambda outputs, batch: loss(outputs, batch[name]), where name "
            f"is one of {', '.join(map(str, targets))}."
        )
    return (
        "classes are whole numbers from 0 (targets.long()), one a record, fewer than the model has outputs; numbers to come close to have "
        "the outputs' type and shape: (B, 1), as of targets[:, None], where the model has one output."
    )


def _writes() -> InputError:
    return InputError(
        "loss: it writes into the model's outputs, so nothing can be asked of them again.",
        source="the check of the loss: an operation in place, such as outputs.div_(2)",
        remedy="compute out of place: outputs / 2, masked_fill, outputs.clone().",
    )


def _as_leaf(entry: Tensor) -> Tensor:
    leaf = entry.detach().clone()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf


def _one_each(losses: Any, records: int) -> bool:
    return isinstance(losses, Tensor) and losses.shape == (records,) and losses.is_floating_point()


def _mapped(pair: tuple[Any, Any], records: int, replace: Callable[[Tensor], Tensor]) -> tuple[Any, Any]:
    return tree_map(lambda entry: replace(entry) if has_rows(entry, records) else entry, pair)


def _companies(
    outputs: Any, targets: Any, losses: Tensor, usable: list[int], *, each: bool
) -> Iterator[tuple[tuple[Any, Any], Tensor, str]]:
    """Outputs and targets with some records replaced, and who was kept.

    Args:
        outputs, targets: of the batch.
        losses: their losses.
        usable: whose are finite.
        each: replace either half in both ways; else the one by copies, the other one by NaN.
    """
    records, values = len(losses), losses.tolist()
    poison = losses.device.type == "cpu"  # elsewhere a loss of probabilities may end the process at NaN
    for place, replaced in enumerate(halves(records, losses.device)):
        gone = replaced.tolist()
        kept = [record for record in usable if not gone[record]]
        if not kept:
            continue
        if each or place == 0 or not poison:
            # By the hardest of those that are kept and by another one: both at once, where there is room for both.
            others = [max(kept, key=lambda record: values[record]), chance.choice(kept)]
            places = replaced.nonzero()[:, 0].tolist()
            for copies in [others] if len(places) > 1 else [[record] for record in others]:
                rows = list(range(records))
                for turn, at in enumerate(sample(places, len(places))):
                    rows[at] = copies[turn % len(copies)]
                copied = _mapped((outputs, targets), records, lambda entry, rows=rows: entry[rows])
                yield copied, ~replaced, "where others are copies of itself or of another"
        if poison and (each or place == 1):
            poisoned = tree_map(lambda entry, gone=replaced: with_nothing(entry, gone) if has_rows(entry, records) else entry, outputs)
            yield (poisoned, targets), ~replaced, "where others are NaN"


def _depends(record: int, comparison: str) -> InputError:
    return InputError(
        f"loss: the loss of record {record} depends on the other records of its batch.",
        source=f"the check of the loss: {comparison}",
        remedy="compute each record's loss from its own output and target: no mean, median, count or weight of the batch, detached or not; "
        "if there is none, begin with a batch of another size: this one may be as long as another dimension of the outputs.",
    )
