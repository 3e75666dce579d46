"""Whether gradients were only made shorter, as torch.nn.utils.clip_grad_norm_ does it: what is done to noisy gradients costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.core.tensors import local

_ALIKE = 1e-6  # of a factor that is found from one number; from n numbers it is found sqrt(n) times as well
_ROUNDINGS = 4  # of the factor as it is found, and of the products with it, in eps


def scaled(how: str, step: int) -> InputError:
    """The error of a step whose noisy gradients were scaled by a number that has nothing to do with their norm."""
    return InputError(
        f"step {step}: the noisy gradients are {how} before the optimiser's step.",
        source="torch.amp.GradScaler, which divides gradients by the scale of a loss; or a loop that divides them by a number of batches",
        remedy="leave the scaler out, since noisy gradients are those of the losses as they are, and compute under torch.autocast in "
        "bfloat16, which needs no scaling; engine.backward divides by the size of the batch, and any other factor belongs into the "
        "learning rate.",
    )


class ScaledSteps:
    """Tells clipping to a norm, whose factor is another one in each step, from scaling by a number: privacy allows both, but the latter is
    an accident, after which next to nothing is trained."""

    def __init__(self) -> None:
        self._first: list[float] | None = None
        self._looks = True

    def refuse(self, factors: Sequence[float], sizes: Sequence[int], step: int) -> None:
        """Refuse a power of two, which clipping meets once in some millions of steps, and what the first two steps have in common.

        Args:
            factors: by which this step's gradients were made shorter.
            sizes: how many numbers each of them has.
            step: its number.
        Raises:
            InputError: they were scaled.
        """
        if (exact := next((factor for factor in factors if math.frexp(factor)[0] == 0.5), None)) is not None:
            raise scaled(f"divided by {1 / exact:.0f}", step)
        if self._looks and self._first is not None:
            self._looks = False
            if len(self._first) == len(factors) and all(map(_same, self._first, factors, sizes)):
                raise scaled(f"multiplied by {factors[0]:.4g}, as in the step before,", step)
        self._first = list(factors)


def _same(one: float, other: float, size: int) -> bool:
    return abs(one - other) <= _ALIKE / math.sqrt(size) * one


@torch.no_grad()
def shortening(now: Tensor, before: Tensor) -> float | None:
    r"""The $0 < c \le 1$ with which `now` is $c\,$`before`, up to the rounding of these products; None: there is no such number.

    The factor stands for a learning rate of this parameter's own, which nobody checks where every iterate is released. Anything else, such
    as a second gradient that was added, is no multiple. In a shard, of what this process holds.

    Args:
        now: a gradient, float32 or float64.
        before: as it was handed over.
    """
    one, other = local(now), local(before)
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return None
    if not one.numel() or bool((one == other).all()):
        return 1.0
    kind = torch.finfo(one.dtype)
    largest = other.abs().argmax()
    found, expected = one.reshape(-1).double(), other.reshape(-1).double()
    unit = expected / expected[largest]
    factor = float((found / expected[largest]) @ unit / (unit @ unit))
    if not 0 < factor <= 1 + _ROUNDINGS * kind.eps:
        return None
    product = expected * factor
    allowed = _ROUNDINGS * kind.eps * product.abs() + 2 * kind.tiny * kind.eps
    return factor if bool(((found - product).abs() <= allowed).all()) else None
