"""The features that a frozen backbone gives each record, with a check that they depend on that record alone. The linear loop, `train_head`
and `Rows` read through a `Backbone`. Mixed features would let a record change others' gradients, uncertified.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train.clip.module_state import digests
from lethe.train.core.comparison import ALLOWED
from lethe.train.data.map_style import Padded
from lethe.train.data.sources import Source, fetched

_DEPENDENCE = "a record then counts more than once a step, and no certificate covers it"


@dataclass(frozen=True, slots=True, eq=False)
class Backbone:
    """A backbone in eval mode, frozen: from the inputs of B records, shape (B, ...), to features of shape (B, columns), so many at once
    as `size`.
    """

    module: nn.Module
    columns: int
    size: int

    def __call__(self, inputs: Tensor) -> Tensor:
        """The features; InputError for something else than one vector of d real numbers for each record."""
        rows, out = len(inputs), self.module(inputs)
        if not isinstance(out, Tensor) or out.shape != (rows, self.columns) or not out.is_floating_point():
            got = f"{out.dtype} of shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise InputError(
                f"backbone: gave {got} for {rows} records; it needs one vector of {self.columns} real numbers for each.",
                source="backbone, head.in_features",
                remedy="end the backbone with what makes vectors, such as nn.Flatten(), and give the head as many inputs.",
            )
        return out

    def copied(self) -> Backbone:
        """A copy that shares nothing with it; InputError where it cannot be copied."""
        try:
            return replace(self, module=copy.deepcopy(self.module))
        except Exception as error:  # whatever a module's own attributes make of being copied
            raise InputError(
                "backbone: cannot be copied: a copy shows what stays of a batch, and each block of a table has its own.",
                source="copy.deepcopy(backbone)",
                remedy="take out what cannot be copied, or compute the features before and give them as a table, with nn.Identity().",
            ) from error

    def batches(self, source: Source, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Features, in the backbone's type, and targets of a source's records, a physical batch at a time; InputError for others."""
        return ((self(inputs), targets) for inputs, targets, _ in self._read(source, device))

    def checked(self, source: Source, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        r"""As `batches`, with a look whether each record's features are a function of that record alone.

        The first physical batch is looked at, and the last where it is shorter: for each binary digit of the records' numbers in it, the
        records with a 1 there are exchanged for other inputs, and the features of those with a 0 must not change by a bit; then the other
        way round. Any two records differ in some digit, so each is compared while every other one changes.

        What a backbone keeps of records outside its buffers shows in two ways: a copy of it that was shown other inputs first must give
        the same features of the first batch, bit for bit, and so must the backbone itself once more when it has seen all records. How it
        behaves on other inputs, and whether records change each other in other batches, is not checked.
        """
        twin, numbers = self.copied(), digests(self.module)
        first_batch: tuple[Tensor, Tensor] | None = None
        for inputs, targets, padded in self._read(source, device):
            if first_batch is None or len(inputs) < self.size:
                expected = self(inputs.clone()).clone()
                self._refuse_other_features(inputs, expected)
                if first_batch is None:
                    first_batch = inputs.clone(), expected
                    twin._refuse_memory(source, inputs, expected)
                self._refuse_dependence(inputs, expected)
            rows = self(inputs)
            for record, single in padded.items():
                self._refuse_padding(rows[[record]], single.to(device))
            yield rows.to("cpu", copy=True), targets  # a copy: a backbone may write its next features over these
        assert first_batch is not None
        self._refuse_other_features(*first_batch)
        now = digests(self.module)
        if changed := [name for name in numbers if now.get(name) != numbers[name]]:
            raise HypothesisError(
                f"the backbone keeps what it saw: {changed[0]} ({len(changed)} in all) changed while it computed features.",
                source="a buffer that the forward pass writes",
                remedy="take out what is kept, or compute the features beforehand, each of its record alone.",
            )

    def _read(self, source: Source, device: torch.device) -> Iterator[tuple[Tensor, Tensor, dict[int, Tensor]]]:
        """Inputs, targets, and of padded batches some inputs collated alone, by their row."""
        for first in range(0, len(source), self.size):
            tensors = fetched(source, slice(first, min(first + self.size, len(source))))
            if len(tensors) != 2:
                raise InputError(
                    f"data: got records of {len(tensors)} tensors; it needs an input and a target.", remedy="give (inputs, targets)."
                )
            single_inputs = (
                {record: record_tensors[0] for record, record_tensors in tensors.alone.items()} if isinstance(tensors, Padded) else {}
            )
            yield (
                tensors[0].to(device).contiguous(),
                tensors[1].cpu(),
                single_inputs,
            )  # in one order of memory, on which the last bit may depend

    def _refuse_memory(self, source: Source, inputs: Tensor, expected: Tensor) -> None:
        """Refuse a backbone whose copy, having seen other inputs first, gives the first batch other features."""
        rows = len(inputs)
        changed_inputs = inputs[torch.arange(rows, device=inputs.device) // 2]  # not only in another order, which no mean would show
        if rows == 1:
            changed_inputs = fetched(source, slice(len(source) - 1, len(source)))[0].to(inputs.device)
        self(_other(changed_inputs))
        if not _same(self(inputs.clone()), expected):
            raise HypothesisError(
                f"backbone: gives records other features when it saw others before; {_DEPENDENCE}.",
                source="a layer that fits itself to the first batch it sees, or otherwise remembers records, in an attribute of its own",
                remedy="let public data pass through it first, or take that layer out.",
            )

    def _refuse_other_features(self, inputs: Tensor, expected: Tensor) -> None:
        if not _same(self(inputs.clone()), expected):
            raise HypothesisError(
                "backbone: gave the same records other features the second time; the head would not predict as it was trained.",
                source="the backbone draws random numbers, or remembers what it saw",
                remedy="take out what is random in eval mode too, or set torch.use_deterministic_algorithms(True).",
            )

    def _refuse_padding(self, row: Tensor, single: Tensor) -> None:
        expected = self(single)
        finite = torch.isfinite(expected)
        apart, sizes = (row - expected)[finite].abs(), expected[finite].abs()
        if len(sizes) and not bool((apart <= ALLOWED[expected.dtype] * sizes.max()).all()):
            raise HypothesisError(
                "backbone: a record's features depend on how far its batch is padded, and so on the other records.",
                source="the check of padded batches: the record in its batch against the record collated alone",
                remedy="mask padding in the backbone, pad all records to one fixed length, or use micro-batches of one record "
                "(physical_size=1).",
            )

    def _refuse_dependence(self, inputs: Tensor, expected: Tensor) -> None:
        """Refuse a backbone in which exchanging some records changes the features of others; see `checked`."""
        changed, number = _other(inputs), torch.arange(len(inputs), device=inputs.device)
        for digit in range((len(inputs) - 1).bit_length()):
            ones = (number >> digit) % 2 == 1
            for exchanged in (ones, ~ones):
                mixed = torch.where(exchanged.view(-1, *(1 for _ in inputs.shape[1:])), changed, inputs)
                if not _same(self(mixed)[~exchanged], expected[~exchanged]):
                    raise HypothesisError(
                        f"backbone: the features of some records change when other records do; {_DEPENDENCE}.",
                        source="a layer that mixes, sorts or shifts records, or takes statistics of the batch",
                        remedy="take that layer out, or set physical_size to 1: each record then goes through the backbone alone.",
                    )


def _other(inputs: Tensor) -> Tensor:
    """Other inputs to exchange records for: their neighbour's, moved far away where they are real numbers."""
    shifted = inputs.roll(1, dims=0)
    return 1.0 - 3.0 * shifted if inputs.is_floating_point() else shifted


def _same(first: Tensor, second: Tensor) -> bool:
    return bool(((first == second) | (first.isnan() & second.isnan())).all())
