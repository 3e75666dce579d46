"""Tolerances and small helpers of the checks that compare a record's gradient in its batch with that of the record by itself. The two
differ by rounding where records are independent, by far more where a model mixes them. For clip/check.py, `Backbone`, zeroth_order.py.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

# Differences allowed, relative to the size of what is compared: rounding of different summation orders stays far below,
# records that are mixed lie far above. In a model of float64 some layers may compute in float32 by themselves.
ALLOWED: Mapping[torch.dtype, float] = {torch.float64: 1e-6, torch.float32: 2e-3, torch.bfloat16: 0.1, torch.float16: 0.05}

# The same, between two batches of one shape: only a layout that follows the lengths of sequences rounds differently there.
ALLOWED_IN_SHAPE: Mapping[torch.dtype, float] = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 4e-3}

FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What a model or a loss may raise at a batch that it was not made for."""

BATCH_STATISTICS = "replace what normalises, sorts or centres over the batch: nn.BatchNorm by nn.GroupNorm, x.mean(0) by a constant."
"""What an error of the check tells a user to do."""

chance = random.SystemRandom()
"""Random numbers of the operating system, which leave the model's and the caller's generators as they are."""


def sample(usable: Sequence[Any], count: int) -> list[Any]:
    """Up to `count` of the items, at random, in random order."""
    return chance.sample(list(usable), min(count, len(usable)))


def coarser(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    """The one of two types of number that rounds more."""
    return max(first, second, key=lambda dtype: torch.finfo(dtype).eps)


def arithmetic(device: torch.device | str) -> torch.dtype:
    """The coarsest type that layers may compute in on this device: autocast's; where autocast is off, float64, which adds nothing."""
    kind = torch.device(device).type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float64


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class name."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
