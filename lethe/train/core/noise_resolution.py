"""Checks that parameters are finite, and that noise is not lost to rounding when it is added to them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from lethe.errors import LetheError
from lethe.run.noise.growth import growths
from lethe.run.run import Run

_ROUNDINGS = 1024  # units that noise must span to count as a Gaussian


def least_noise(largest: float, *, fresh: float = 1.0) -> float:
    """The least standard deviation of noise that is not lost to rounding, added in float64 to numbers of at most the size `largest`.

    Args:
        largest: in the units of the noise.
        fresh: the share of it that is drawn anew.
    """
    return _ROUNDINGS * torch.finfo(torch.float64).eps * largest / fresh


def drowned(noise_std: float, least: float) -> LetheError:
    """The error of noise below `least_noise`."""
    return LetheError(
        f"noise of standard deviation {noise_std:.3g} drowns in the rounding of the sums; it needs {least:.3g}.",
        source="noise_multiplier, and the records of a batch",
        remedy="plan more noise, or none at all at the steps where it is this small.",
    )


def refuse_overflow(last: Iterable[torch.Tensor], run: Run, *, remedy: str = "take smaller steps or less noise.") -> None:
    """Raise LetheError for a last iterate that is not finite.

    Args:
        last, run: its tensors, and the run that was carried out.
        remedy: what to do about it.
    """
    if not all(bool(torch.isfinite(tensor).all()) for tensor in last):
        raise LetheError(
            "training overflowed: the last iterate is not finite.",
            source=f"step_size up to {run.step_sizes.max():g}, and noise_multiplier",
            remedy=remedy,
        )


def fresh_share(run: Run, dtype: torch.dtype) -> float:
    r"""How much of a step's own draw is in its correlated noise, at the least: $1/\max_t C_{tt}$.

    Raises:
        LetheError: added in `dtype`, the noise grows so far above its fresh draws that rounding it hides them.
    """
    assert run.noise is not None
    strategy, growth = run.noise.strategy(run.total_steps), float(growths(run.noise, run.total_steps).max())
    # C w = z + e, with e at most the rounding of the products in a row.
    lost = (run.noise.stream().held + 2) * float(np.abs(strategy).max()) * growth * torch.finfo(dtype).eps
    if not lost * _ROUNDINGS < 1.0:
        raise LetheError(
            f"the noise of a step becomes {growth:.3g} times what is drawn for it, which drowns in the rounding of {dtype}.",
            source=f"noise.kind = {run.noise.kind}",
            remedy="take coefficients that fall off, as lethe.correlate finds them, fewer steps, or float64.",
        )
    return 1.0 / float(strategy[0] if strategy.ndim == 1 else np.diagonal(strategy).max())
