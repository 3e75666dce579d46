"""A warning where the size of a batch shows in the rounding of every record's gradient."""

from __future__ import annotations

import warnings

import torch

from lethe.errors import BatchShapeWarning
from lethe.run.participation import BatchSizes
from lethe.run.run import Run
from lethe.train.clipping import Clipper

_ALWAYS_AS_LARGE = ("zero_out", "replace_one")  # neighbours that have as many records


def warn_of_shapes(clipper: Clipper, run: Run, device: torch.device, *, physical_size: int | None) -> None:
    """Say that a record's presence changes how the others are rounded.

    A GPU multiplies batches of another size in another order. In float32 that moved the sum of the others by some millionths of the clip
    norm C, by tf32 by 5e-4 C, and under autocast to bfloat16 by up to 2e-2 C (an H100, up to 64 records).

    Args:
        clipper: that clips its gradients.
        run: that is carried out.
        device: where it is.
        physical_size: how many rows every micro-batch is filled up to; None: none is.
    """
    fixed = run.batches.sizes is BatchSizes.EXACT and run.neighbours in _ALWAYS_AS_LARGE
    if device.type == "cpu" or physical_size is not None or fixed:
        return
    coarse = torch.finfo(clipper.precision).eps > torch.finfo(torch.float32).eps
    if coarse or torch.get_float32_matmul_precision() != "highest":
        warnings.warn(
            f"one record more or less changes the size of a batch, and on {device.type} in {clipper.precision if coarse else 'tf32'} "
            "with it how the gradients of all others are rounded: by up to 2 % of the clip norm was measured, which no certificate counts. Give "
            "physical_size (of fit and PrivacyEngine): every batch is then filled up to one shape.",
            BatchShapeWarning,
            stacklevel=3,
        )
