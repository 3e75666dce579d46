"""How far rounding can put a sum of clipped gradients from the exact one, whatever the records are. Rounding adds to a record's influence,
so `clipper_of` and `Clipper` clip to a norm smaller by `margin_of`, which covers it.
"""

import math
import warnings
from dataclasses import replace

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.clip.float64_sums import CHAIN
from lethe.train.clip.groups import Group
from lethe.train.clip.parts.part import CANCELLED

# Of products that are not formed, a record's lengths add up to at most CANCELLED clip norms (`parts`), and none of them goes through more
# roundings than this (`weighted_sums`).
_THROUGH = 2 * CHAIN + 64

# Additions over the parts of a shared weight and the uses of a layer; and processes at the least, so that a training can go on in more.
_OTHERS, _PROCESSES = 64, 2**10

_MOST, _PRINTED = 0.5, 1e-3  # shares of the clip norm: what is refused, and from which on people are told


def largest_batch(run: Run) -> int:
    r"""K: the records of a batch; of random size $b + 12\sqrt b + 100$, which more are with a probability below $e^{-70}$."""
    size = run.batch_size
    if not run.batches.exact_size:
        size = min(math.ceil(size + 12 * math.sqrt(size) + 100), run.records)
    return size if run.batches.cap is None else min(size, run.batches.cap)


def sum_error(records: int, part: int, *, processes: int) -> float:
    r"""A bound on twice the rounding error of a sum, over the clip norm.

    $$\frac{\sigma}{1 - 2\sigma},\qquad \sigma = 2uK\,\big(2^{10}(2^{11} + 64) + 2P + K + W + 64\big),\qquad u = 2^{-53}$$

    Parts of any sizes up to P are within it, which are at most K: a model that is trained record by record has parts of one record.
    Infinity where $\sigma \ge \frac12$. See docs/theory.md, section 15. K records of a batch, P of a micro-batch at most, W processes (1024
    if there are fewer).
    """
    through = CANCELLED * _THROUGH + 2 * part + records
    first_order = 2.0**-52 * records * (through + max(processes, _PROCESSES) + _OTHERS)
    return first_order / (1.0 - 2.0 * first_order) * (1 + 2.0**-50) if first_order < _MOST else math.inf


def margin_of(run: Run, part: int | None, *, processes: int) -> float:
    """The share of the clip norm by which records are clipped shorter, so that sums as they are computed move by no more than it says.

    Micro-batches are of at most `part` records; None: all of a batch.
    """
    records = largest_batch(run)
    part = records if part is None else min(records, part)
    share = sum_error(records, part, processes=processes)
    message = f"a sum of up to {records} gradients in parts of {part} may be off by {share:.2g} of the clip norm"
    remedy = "give smaller batches: their sums are more exact."
    if not share <= _MOST:
        raise InputError(f"clip_norm: {message}.", source="records, batches and physical_size", remedy=remedy)
    if share > _PRINTED:
        warnings.warn(f"{message}: records are clipped to so much less, which the certificate needs. {remedy}", stacklevel=2)
    return share


def shorter(groups: tuple[Group, ...], margin: float) -> tuple[Group, ...]:
    """The groups with norms that are smaller by this share."""
    return tuple(replace(group, clip_norm=group.clip_norm * (1.0 - margin)) for group in groups)
