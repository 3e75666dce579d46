"""The features that a frozen backbone gives each record, computed once, with a check that records do not meet on the way."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train.clip.check.kept_state import digests
from lethe.train.core.comparison import ALLOWED
from lethe.train.data.map_style import Padded
from lethe.train.data.sources import Source, fetched

_MEETING = "a record then counts more than once a step, and no certificate covers it"


@torch.no_grad()
def checked_features(
    backbone: nn.Module, twin: nn.Module | None, source: Source, *, columns: int, size: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    r"""Features, in the backbone's type, and targets of all records, a physical batch at a time: each a function of its record alone.

    The first physical batch is looked at, and the last where it is shorter: for each binary digit of the records' numbers in it, the
    records with a 1 there are exchanged for other inputs, and the features of those with a 0 must not change by a bit; then the other way
    round. Any two records differ in some digit, so each is seen to stay when each other changes.

    What a backbone keeps of records outside its buffers shows in two ways: a copy of it that was shown other inputs first must give the
    same features of the first batch, bit for bit, and so must the backbone itself once more when it has seen all records. How it behaves
    on other inputs, and whether records meet in other batches, is not seen.

    Args:
        backbone: in eval mode, frozen.
        twin: a copy that has seen nothing; None: none could be made.
        source: at least one record, each an input and a target.
        columns: d.
        size: records at once.
        device: of the backbone.
    Raises:
        InputError: data or features that cannot be used.
        HypothesisError: records meet, the features are random or depend on what was seen before, or the backbone's buffers or parameters
            change.
    """
    numbers = digests(backbone)
    seen: tuple[Tensor, Tensor] | None = None
    for first in range(0, len(source), size):
        tensors = fetched(source, slice(first, min(first + size, len(source))))
        if len(tensors) != 2:
            raise InputError(
                f"data: got records of {len(tensors)} tensors; it needs an input and a target.", remedy="give (inputs, targets)."
            )
        inputs = tensors[0].to(device).contiguous()  # in one order of memory, on which the last bit may depend
        if first == 0 or len(inputs) < size:
            expected = features_at_once(backbone, inputs.clone(), columns).clone()
            _refuse_other_features(backbone, inputs, expected)
            if first == 0:
                seen = inputs.clone(), expected
                if twin is not None:
                    _refuse_memory(twin, source, inputs, expected)
            _refuse_meeting(backbone, inputs, expected)
        rows = features_at_once(backbone, inputs, columns)
        if isinstance(tensors, Padded):
            _refuse_padding(backbone, rows, {record: own[0].to(device) for record, own in tensors.alone.items()})
        yield rows.to("cpu", copy=True), tensors[1].cpu()  # a copy: a backbone may write its next features over these
    assert seen is not None
    _refuse_other_features(backbone, *seen)
    now = digests(backbone)
    if changed := [name for name in numbers if now.get(name) != numbers[name]]:
        raise HypothesisError(
            f"the backbone keeps what it saw: {changed[0]} ({len(changed)} in all) changed while it computed features.",
            source="a buffer that the forward pass writes",
            remedy="take out what is kept, or compute the features beforehand, each of its record alone.",
        )


def refuse_trained(backbone: nn.Module, device: torch.device) -> None:
    """Refuse a backbone that would be trained, or that is on another device.

    Raises:
        InputError: see above.
    """
    if trained := [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]:
        raise InputError(
            f"backbone: {trained[0]} ({len(trained)} of its parameters) requires grad; a backbone is not trained.",
            source="backbone",
            remedy="call backbone.requires_grad_(False), or train all of it with lethe.train.fit.",
        )
    devices = {str(tensor.device) for tensor in (*backbone.parameters(), *backbone.buffers())}
    if not devices <= {str(device)}:
        raise InputError(
            f"backbone: it is on {', '.join(sorted(devices))}, and the head on {device}; the model that comes back needs one device.",
            remedy=f'call backbone.to("{device}"), or move the head.',
        )


def features_at_once(backbone: nn.Module, inputs: Tensor, columns: int) -> Tensor:
    """What the backbone gives of a physical batch, shape (B, d).

    Args:
        backbone: in eval mode, frozen.
        inputs: of B records, shape (B, ...).
        columns: d.
    Raises:
        InputError: something else than one vector of d real numbers for each record.
    """
    rows, out = len(inputs), backbone(inputs)
    if not isinstance(out, Tensor) or out.shape != (rows, columns) or not out.is_floating_point():
        got = f"{out.dtype} of shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise InputError(
            f"backbone: gave {got} for {rows} records; it needs one vector of {columns} real numbers for each.",
            source="backbone, head.in_features",
            remedy="end the backbone with what makes vectors, such as nn.Flatten(), and give the head as many inputs.",
        )
    return out


def copied(backbone: nn.Module) -> nn.Module | None:
    """A copy of its own; None: it cannot be copied."""
    try:
        return copy.deepcopy(backbone)
    except Exception:  # whatever a module's own attributes make of being copied
        return None


def _refuse_memory(twin: nn.Module, source: Source, inputs: Tensor, expected: Tensor) -> None:
    """Refuse a backbone whose copy, having seen other inputs first, gives these other features.

    Args:
        twin: the copy, which has seen nothing.
        source: of one record only, where inputs are whole numbers, others are taken from its end.
        inputs: of the first batch.
        expected: what the backbone itself, which had seen nothing either, gave for them.
    """
    columns, rows = expected.shape[1], len(inputs)
    others = inputs[torch.arange(rows, device=inputs.device) // 2]  # not only in another order, which no mean would show
    if rows == 1:
        others = fetched(source, slice(len(source) - 1, len(source)))[0].to(inputs.device)
    features_at_once(twin, _other(others), columns)
    if not _same(features_at_once(twin, inputs.clone(), columns), expected):
        raise HypothesisError(
            f"backbone: gives records other features when it saw others before; {_MEETING}.",
            source="a layer that fits itself to the first batch it sees, or otherwise remembers records, in an attribute of its own",
            remedy="let public data pass through it first, or take that layer out.",
        )


def _refuse_other_features(backbone: nn.Module, inputs: Tensor, expected: Tensor) -> None:
    """Refuse a backbone that gives the same records other features the second time."""
    if not _same(features_at_once(backbone, inputs.clone(), expected.shape[1]), expected):
        raise HypothesisError(
            "backbone: gave the same records other features the second time; the head would not predict as it was trained.",
            source="the backbone draws random numbers, or remembers what it saw",
            remedy="take out what is random in eval mode too, or set torch.use_deterministic_algorithms(True).",
        )


def _refuse_padding(backbone: nn.Module, rows: Tensor, alone: Mapping[int, Tensor]) -> None:
    """Refuse features that depend on how far a batch is padded."""
    for record, single in alone.items():
        expected = features_at_once(backbone, single, rows.shape[1])
        finite = torch.isfinite(expected)
        apart, sizes = (rows[[record]] - expected)[finite].abs(), expected[finite].abs()
        if len(sizes) and not bool((apart <= ALLOWED[expected.dtype] * sizes.max()).all()):
            raise HypothesisError(
                "backbone: gives a record of a padded batch other features than the record alone: they depend on how far its batch is "
                "padded, and so on the others' lengths.",
                source="the check of padded batches: the record in its batch against the record collated alone",
                remedy="mask the padding in the backbone, pad every record to one length that is fixed before, or set physical_size to 1.",
            )


def _refuse_meeting(backbone: nn.Module, inputs: Tensor, expected: Tensor) -> None:
    other = _other(inputs)
    number = torch.arange(len(inputs), device=inputs.device)
    for digit in range((len(inputs) - 1).bit_length()):
        ones = (number >> digit) % 2 == 1
        for exchanged in (ones, ~ones):
            mixed = torch.where(exchanged.view(-1, *(1 for _ in inputs.shape[1:])), other, inputs)
            if not _same(features_at_once(backbone, mixed, expected.shape[1])[~exchanged], expected[~exchanged]):
                raise HypothesisError(
                    f"backbone: the features of some records change when other records do; {_MEETING}.",
                    source="a layer that mixes, sorts or shifts records, or takes statistics of the batch",
                    remedy="take that layer out, or set physical_size to 1: each record then goes through the backbone alone.",
                )


def _other(inputs: Tensor) -> Tensor:
    """What to exchange them for: each other's, and far away where they are real numbers."""
    shifted = inputs.roll(1, dims=0)
    return 1.0 - 3.0 * shifted if inputs.is_floating_point() else shifted


def _same(first: Tensor, second: Tensor) -> bool:
    return bool(((first == second) | (first.isnan() & second.isnan())).all())
