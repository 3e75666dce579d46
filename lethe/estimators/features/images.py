"""Images as arrays or as rows of a table: their shape, their range, and blocks of them as float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.calculus.domains import outside
from lethe.errors import InputError

_BYTE = 255
_LARGEST = 1e6  # of an entry: squares of sums over a million pixels stay finite in float32
_NEEDED = "images of shape (n, H, W) or (n, C, H, W), or rows of C H W pixels with image_shape=(C, H, W)"

Pixels = np.ndarray[Any, Any]


def read_images(X: Any, image_shape: Any) -> Pixels:
    """Images with an axis of channels, shape (n, C, H, W), of their own type and not copied where they are an array.

    Args:
        X: shape (n, H, W), (n, C, H, W), or (n, C H W) with image_shape.
        image_shape: (H, W) or (C, H, W), or None.
    Raises:
        InputError: no numbers, or of another shape.
    """
    declared = declared_shape(image_shape)
    try:
        images = np.asarray(X)
    except (TypeError, ValueError):
        raise outside("X", type(X).__name__, _NEEDED) from None
    if images.dtype.kind not in "biuf":
        raise outside("X", f"array of type {images.dtype}", "numbers: whole ones from 0 to 255, or floating-point ones")
    if images.ndim == 2 and declared is not None:
        if images.shape[1] != declared[0] * declared[1] * declared[2]:
            raise InputError(
                f"X: {images.shape[1]} columns; image_shape = {image_shape!r} needs {declared[0] * declared[1] * declared[2]}.",
                source="the argument X and the parameter image_shape",
                remedy="give all pixels of an image as one row: channels, rows, columns, the last one fastest",
            )
        images = images.reshape(len(images), *declared)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise outside("X", f"array of shape {np.shape(X)}", _NEEDED)
    if declared is not None and images.shape[1:] != declared:
        raise InputError(
            f"X: images of shape {images.shape[1:]} (channels, rows, columns); image_shape = {image_shape!r} needs {declared}.",
            source="the argument X and the parameter image_shape",
            remedy="channels come first: np.moveaxis(images, -1, 1) for images that have them last",
        )
    return images


def declared_shape(image_shape: Any) -> tuple[int, int, int] | None:
    """Channels, rows and columns as the parameter image_shape says; None: it says nothing.

    Raises:
        InputError: it is no such shape.
    """
    if image_shape is None:
        return None
    needed = "None, (rows, columns) or (channels, rows, columns), whole numbers of at least 1"
    if not isinstance(image_shape, tuple | list) or len(image_shape) not in (2, 3):
        raise outside("image_shape", image_shape, needed)
    if any(isinstance(side, bool) or not isinstance(side, int | np.integer) or side < 1 for side in image_shape):
        raise outside("image_shape", image_shape, needed)
    sides = tuple(int(side) for side in image_shape)
    return (1, *sides) if len(sides) == 2 else (sides[0], sides[1], sides[2])


def shape_of(image_shape: Any) -> tuple[int, int, int]:
    """Channels, rows and columns, where image_shape has to say them.

    Raises:
        InputError: it is None, or no shape.
    """
    found = declared_shape(image_shape)
    if found is None:
        raise outside("image_shape", None, "(rows, columns) or (channels, rows, columns)")
    return found


def block_of_images(images: Pixels, first: int, count: int) -> Pixels:
    """`count` images from the first one on as float32: whole numbers, 0 to 255, become 0 to 1; others stay as they are.

    Args:
        images: shape (n, C, H, W).
        first: where the block begins.
        count: its length; fewer at the end.
    Returns:
        Shape (count, C, H, W), a copy.
    Raises:
        InputError: an entry is missing, infinite, or out of range.
    """
    part = images[first : first + count]
    if part.dtype.kind in "iu":
        if part.dtype != np.uint8 and part.size and not (part.min() >= 0 and part.max() <= _BYTE):
            raise _wrong(part, (part < 0) | (part > _BYTE), first, "a whole number from 0 to 255, which becomes 0 to 1")
        return part.astype(np.float32, order="C") / np.float32(_BYTE)
    if part.dtype.kind == "f" and not (np.abs(part) <= _LARGEST).all():  # nan is not either
        raise _wrong(part, ~(np.abs(part) <= _LARGEST), first, f"a finite number within {_LARGEST:g}")
    return part.astype(np.float32, order="C")  # of another order sums would round otherwise


def _wrong(part: Pixels, where: Pixels, first: int, needed: str) -> InputError:
    image, channel, row, column = np.argwhere(where)[0].tolist()
    got = part[image, channel, row, column].item()
    return InputError(
        f"X: image {first + image}, channel {channel}, pixel ({row}, {column}) is {got!r}; it needs {needed}.",
        source="the argument X",
        remedy="scale images to 0..1 as floating-point numbers, or give them as numpy.uint8; fill in what is missing",
    )
