r"""The SHA-256 of named tensors, the same for every file format and machine they are kept in.

The bytes that are hashed, format `lethe-tensors-v1`:

1. the line `lethe-tensors-v1`, ended by "\n";
2. for each tensor, in the order of the names' UTF-8 bytes:
   a line with the JSON list `["name","dtype",[shape]]`, no spaces, characters beyond ASCII as `\uXXXX`, ended by "\n";
   then its numbers in row-major order, little-endian, nothing in between.

The line says how many bytes follow, so two different sets of tensors never give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lethe.errors import InputError

FORMAT = "lethe-tensors-v1"

BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""How many bytes a number of each known type has, by the type's name in numpy and PyTorch."""


class RawTensor(NamedTuple):
    """A tensor as bytes.

    Args:
        dtype: a key of `BYTES`.
        shape: its sizes; () for a single number.
        data: its numbers, row-major, little-endian.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Any


def tensors_digest(tensors: Mapping[str, RawTensor | np.ndarray[Any, Any]]) -> str:
    """The SHA-256 of the canonical bytes, 64 hexadecimal digits.

    Args:
        tensors: by name; at least one.
    Raises:
        InputError: there is none, or one of a kind that has no canonical bytes, such as objects and text.
    """
    found = hashlib.sha256()
    for chunk in canonical_chunks(tensors):
        found.update(chunk)
    return found.hexdigest()


def canonical_chunks(tensors: Mapping[str, RawTensor | np.ndarray[Any, Any]]) -> Iterator[Any]:
    """The canonical bytes, piece by piece; written to a file, `sha256sum` gives the digest.

    Args, Raises: as `tensors_digest`.
    """
    if not tensors or not all(isinstance(name, str) for name in tensors):
        raise InputError("weights: there are none, or some have no name.", remedy="give tensors by name, such as model.state_dict().")
    yield f"{FORMAT}\n".encode()
    for name in sorted(tensors, key=lambda name: name.encode("utf-8", "surrogatepass")):
        tensor = tensors[name]
        raw = tensor if isinstance(tensor, RawTensor) else _of_array(name, tensor)
        view = memoryview(raw.data)
        view = view.cast("B") if view.nbytes else memoryview(b"")  # views of nothing cannot be cast
        if raw.dtype not in BYTES or len(view) != math.prod(raw.shape) * BYTES[raw.dtype]:
            raise InputError(f"weights: {name!r} has {len(view)} bytes for the shape {raw.shape} of {raw.dtype}.")
        yield json.dumps([name, raw.dtype, list(raw.shape)], separators=(",", ":")).encode() + b"\n"
        yield view


def _of_array(name: str, array: object) -> RawTensor:
    """A numpy array as bytes."""
    if not isinstance(array, np.ndarray) or array.dtype.name not in BYTES:
        got = f"an array of {array.dtype.name}" if isinstance(array, np.ndarray) else type(array).__name__
        raise InputError(f"weights: {name!r} is {got}; it needs numbers of one of the types {', '.join(BYTES)}.")
    ordered = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1)
    return RawTensor(array.dtype.name, array.shape, ordered.view(np.uint8))
