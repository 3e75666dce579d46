"""Files of the safetensors format: eight bytes with the length of a JSON header, the header, and the tensors' bytes.

Reference: github.com/huggingface/safetensors, format of version 0.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lethe.certificates.weights.digest import BYTES, RawTensor
from lethe.errors import InputError

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_LONGEST_HEADER = 100_000_000  # the format's own limit


def read_safetensors(file: Path) -> dict[str, RawTensor]:
    """The tensors of the file, by name.

    Raises:
        InputError: it cannot be read, or its header does not describe its bytes, all of them and each once.
    """
    try:
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        if len(content) < 8 or length > min(_LONGEST_HEADER, len(content) - 8):
            raise ValueError("it ends within its header")
        header = json.loads(content[8 : 8 + length].decode("utf-8"), object_pairs_hook=_once)
        return _described(header, memoryview(content)[8 + length :])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"{file} cannot be read as weights: {error}.", remedy="give a file that safetensors wrote.") from error


def _described(header: dict[str, Any], content: memoryview) -> dict[str, RawTensor]:
    found: dict[str, RawTensor] = {}
    ends: list[tuple[int, int]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, (start, stop) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
            raise ValueError(f"the sizes of {name!r} are no whole numbers")
        if stop - start != math.prod(shape) * BYTES[dtype] or stop > len(content):
            raise ValueError(f"{name!r} does not have the bytes of its shape")
        found[name] = RawTensor(dtype, shape, content[start:stop])
        ends.append((start, stop))
    place = 0
    for start, stop in sorted(ends):
        if start != place:
            raise ValueError("some of its bytes belong to no tensor or to two")
        place = stop
    if place != len(content):
        raise ValueError("some of its bytes belong to no tensor")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a name is given twice")
    return dict(pairs)
