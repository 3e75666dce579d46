"""A warning where the shape of a batch shows in the rounding of every record's gradient."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from lethe.errors import BatchShapeWarning
from lethe.run.participation import BatchSizes
from lethe.run.run import Run
from lethe.train.clipping import Clipper
from lethe.train.clipping.rules.precision import tf32_in_convolutions
from lethe.train.data import BatchStream

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_ALWAYS_AS_LARGE = ("zero_out", "replace_one")  # neighbours that have as many records


def warn_of_shapes(clipper: Clipper, run: Run, device: torch.device, stream: BatchStream) -> None:
    """Say that a record's presence, or its length, changes how the others are rounded.

    A GPU multiplies batches of another shape in another order. In float32 one row more moved the sum of the others by some millionths of
    the clip norm C, by tf32 by 5e-4 C, and under autocast to bfloat16 by up to 2e-2 C (an H100, up to 64 records).

    Args:
        clipper: that clips its gradients.
        run: that is carried out.
        device: where it is.
        stream: of its batches.
    """
    as_many = stream.physical_size is not None or (run.batches.sizes is BatchSizes.EXACT and run.neighbours in _ALWAYS_AS_LARGE)
    if device.type == "cpu" or (as_many and not stream.pads):
        return
    coarse = torch.finfo(clipper.precision).eps > torch.finfo(torch.float32).eps
    if coarse or _in_tf32(clipper.model):
        why, remedy = (
            ("a record that is longer makes its whole batch longer", "PadTo (a collate_fn) pads all records to one length.")
            if as_many
            else ("one record more makes a batch larger", "physical_size fills every batch up to one number of rows.")
        )
        warnings.warn(
            f"{why}, which on {device.type} in {clipper.precision if coarse else 'tf32'} changes how the gradients of all others are "
            f"rounded: by up to 2 % of the clip norm was measured, which no certificate counts. Give batches one shape: {remedy}",
            BatchShapeWarning,
            stacklevel=4,
        )


def _in_tf32(model: nn.Module) -> bool:
    """Whether products of float32 numbers may be taken of numbers of ten bits."""
    convolves = any(isinstance(module, _CONVOLUTIONS) for module in model.modules())
    return torch.get_float32_matmul_precision() != "highest" or (convolves and tf32_in_convolutions() is not False)
