"""How far rounding can put a sum of clipped gradients from the exact one, whatever the records are."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import torch

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.clipping.groups import Group

# T positions of a record whose gradients are not formed are T terms of lengths that add up to L. A record for which rounding in float32
# could matter is taken out of the product (measuring.py), so that T L is at most this many clip norms in the product.
_TERMS, _TERMS_ON_GPU = 67, 4200

# Additions over the parts of a shared weight, and over the uses of a layer.
_OTHERS = 64

_MOST, _PRINTED = 0.5, 1e-3  # shares of the clip norm: what is refused, and from which on people are told


def largest_batch(run: Run) -> int:
    r"""K: the records of a batch; of random size $b + 12\sqrt b + 100$, which more are with a probability below $e^{-70}$."""
    size = run.batch_size
    if not run.batches.exact_size:
        size = min(math.ceil(size + 12 * math.sqrt(size) + 100), run.records)
    return size if run.batches.cap is None else min(size, run.batches.cap)


def sum_error(records: int, part: int, *, processes: int, device: torch.device) -> float:
    r"""A bound on twice the rounding error of a sum, over the clip norm.

    $$2uK\,(67P + \lceil K/P\rceil + W + 64),\qquad u = 2^{-53}$$

    See docs/theory.md, section 14.

    Args:
        records: K, of a batch.
        part: P, of a micro-batch at most.
        processes: W.
        device: where the sum is made; a GPU takes fewer records out of products, and has 4200 for 67.
    """
    terms = _TERMS if device.type == "cpu" else _TERMS_ON_GPU
    return 2.0**-52 * records * (terms * part + math.ceil(records / part) + processes + _OTHERS) * (1 + 2.0**-30)


def within(groups: tuple[Group, ...], run: Run, physical_size: int | None, *, processes: int, device: torch.device) -> tuple[Group, ...]:
    """The groups to which records are clipped so that sums, as they are computed, move by no more than these groups say.

    Args:
        groups: whose norms are counted.
        run: that is carried out.
        physical_size: the most records of a micro-batch; None: all of a batch.
        processes: that train together.
        device: where the sums are made.
    Raises:
        InputError: half of the clip norm would be lost.
    """
    records = largest_batch(run)
    given = physical_size if isinstance(physical_size, int) and physical_size > 0 else records  # what is no size is refused by the stream
    part = min(records, given)
    share = sum_error(records, part, processes=processes, device=device)
    told = f"a sum of up to {records} gradients in parts of {part} may be off by {share:.2g} of the clip norm"
    remedy = f"give physical_size, {math.ceil(math.sqrt(records / 64))} or so: sums of smaller parts are more exact."
    if not share <= _MOST:
        raise InputError(f"clip_norm: {told}.", source="records, batches and physical_size", remedy=remedy)
    if share > _PRINTED:
        warnings.warn(f"{told}: records are clipped to so much less, which the certificate needs. {remedy}", stacklevel=2)
    return tuple(replace(group, clip_norm=group.clip_norm * (1.0 - share)) for group in groups)
