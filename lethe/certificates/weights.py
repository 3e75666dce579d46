r"""Released weights: tensors by name, or files of them, of which nothing is executed; and their SHA-256, which is the same for every
file format and machine they are kept in.

`lethe verify` compares this digest of a file with the one in a certificate; training loops and estimators write it when they release.
Loading a pickle would execute what is in it, so none is loaded.

The bytes that are hashed, format `lethe-tensors-v1`:

1. the line `lethe-tensors-v1`, ended by "\n";
2. for each tensor, in the order of the names' UTF-8 bytes:
   a line with the JSON list `["name","dtype",[shape]]`, no spaces, characters beyond ASCII as `\uXXXX`, ended by "\n";
   then its numbers in row-major order, little-endian, nothing in between.

The line says how many bytes follow, so two different sets of tensors never give the same bytes.
"""

import hashlib
import json
import math
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lethe.documents.strict import as_path
from lethe.errors import InputError, MissingExtraError

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
    """A tensor as little-endian bytes, row-major; its dtype is a key of `BYTES`."""

    dtype: str
    shape: tuple[int, ...]
    data: Any


def tensors_digest(tensors: Mapping[str, RawTensor | np.ndarray[Any, Any]]) -> str:
    """The SHA-256 of the canonical bytes of at least one tensor, 64 hexadecimal digits."""
    sha256 = hashlib.sha256()
    for chunk in canonical_chunks(tensors):
        sha256.update(chunk)
    return sha256.hexdigest()


def canonical_chunks(tensors: Mapping[str, RawTensor | np.ndarray[Any, Any]]) -> Iterator[Any]:
    """The canonical bytes, piece by piece; written to a file, `sha256sum` gives the digest."""
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


Tensors = dict[str, RawTensor | np.ndarray[Any, Any]]

_SAFETENSORS = {
    "BOOL": "bool",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("U", "uint"), ("I", "int"), ("F", "float")) for bits in (8, 16, 32, 64)},
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
"""The types of numbers by their names in safetensors."""
_EXTRA = "_extra_state"  # what a module may keep in a state dict beside parameters and buffers: anything at all
_LINEAR = {"weights", "intercept"}
_BESIDES = {"class_names", "loss", "feature_norm"}  # public settings that `lethe train` writes into the same file


def as_tensors(weights: object) -> Tensors:
    """Named tensors, from the path of a file, or from a mapping of names to arrays or PyTorch tensors, such as a state dict."""
    if isinstance(weights, str | os.PathLike):
        return read_weights(weights)
    if not isinstance(weights, Mapping):
        raise InputError(
            f"weights: got {type(weights).__name__}; it needs the path of a file or tensors by name.", remedy="give model.state_dict()."
        )
    if all(isinstance(entry, np.ndarray | np.generic | int | float | RawTensor) for entry in weights.values()):
        return {name: entry if isinstance(entry, RawTensor) else np.asarray(entry) for name, entry in weights.items()}
    return dict(raw_state(weights))


def read_weights(path: str | os.PathLike[str]) -> Tensors:
    """The tensors of a file, by name.

    Args:
        path: .npz (without pickles), .pt or .pth (a state dict, read with weights_only=True) or .safetensors. Of the file of a linear
            model that `lethe train` writes, the weights and the intercept; the rest are public settings.
    """
    file = as_path(path)
    readers = {".npz": _npz, ".pt": _pt, ".pth": _pt, ".safetensors": _safetensors}
    if file.suffix.lower() not in readers:
        raise InputError(f"{file.name} ends in {file.suffix!r}; weights end in {', '.join(readers)}.", source=str(file))
    if not file.is_file():
        raise InputError(f"{file} is no file.", remedy="give the file that the weights were saved in.")
    return dict(readers[file.suffix.lower()](file))


def _npz(file: Path) -> Tensors:
    try:
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("it is one array without a name")
        with stored:
            names = set(stored.files)
            linear = names >= _LINEAR and names <= _LINEAR | _BESIDES
            return {name: np.asarray(stored[name]) for name in (_LINEAR if linear else names)}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        raise _unreadable(file, error) from error


def _pt(file: Path) -> Mapping[str, RawTensor]:
    torch = _torch()
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever PyTorch's reader stumbles over, the file is at fault
        raise _unreadable(file, error) from error
    if not isinstance(state, Mapping):
        raise InputError(f"{file} holds {type(state).__name__}; it needs tensors by name.", remedy="save model.state_dict().")
    return raw_state(state)


def _safetensors(file: Path) -> dict[str, RawTensor]:
    try:
        from safetensors import SafetensorError, deserialize
    except ImportError as error:
        raise MissingExtraError("this file needs safetensors, which is not installed.", remedy='pip install "lethe-dp[train]"') from error
    try:
        stored = deserialize(file.read_bytes())
        return {name: RawTensor(_SAFETENSORS[tensor["dtype"]], tuple(tensor["shape"]), tensor["data"]) for name, tensor in stored}
    except (OSError, SafetensorError, KeyError) as error:
        raise _unreadable(file, error) from error


def _torch() -> Any:
    """PyTorch, which is loaded only where tensors or files of it are given."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("these weights need PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"') from error
    return torch


def _unreadable(file: Path, error: Exception) -> InputError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(
        f"{file} cannot be read as weights: {reason}", remedy="give a file of plain tensors by name, without pickled objects."
    )


def _raw_tensor(name: str, tensor: Any) -> RawTensor:
    """A tensor's numbers, wherever they are, as bytes; of a dense one on a little-endian machine."""
    torch = _torch()
    if hasattr(tensor, "full_tensor"):
        raise InputError(
            f"weights: {name!r} is a DTensor, of which this process holds a shard.",
            source="fully_shard",
            remedy="give the whole: get_model_state_dict with full_state_dict=True, of torch.distributed.checkpoint.state_dict.",
        )
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or sys.byteorder != "little":
        raise InputError(f"weights: {name!r} has no plain numbers in memory ({tensor.layout}, {tensor.dtype}, {tensor.device}).")
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return RawTensor(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), dense.view(torch.uint8).numpy())


def raw_state(state: Mapping[str, Any]) -> dict[str, RawTensor]:
    """The parameters and buffers of a state dict; what modules keep in it besides, as `_extra_state`, is no tensor and is left out.

    A tensor that wraps others, such as a quantised weight of torchao, counts as these, called NAME.INNER.
    """
    torch = _torch()
    tensors = {name: entry for name, entry in state.items() if not (str(name).endswith(_EXTRA) and not isinstance(entry, torch.Tensor))}
    strange = [name for name, entry in tensors.items() if not isinstance(entry, torch.Tensor)]
    if strange:
        raise InputError(
            f"weights: {strange[0]!r} is {type(tensors[strange[0]]).__name__}, no tensor.",
            remedy="give model.state_dict() and nothing else.",
        )
    raw: dict[str, RawTensor] = {}
    for name, entry in tensors.items():
        for inner, tensor in _plain(name, entry):
            if inner in raw:
                raise InputError(
                    f"weights: two tensors are called {inner!r}.", source="a tensor that wraps others, which are named after it"
                )
            raw[inner] = _raw_tensor(inner, tensor)
    return raw


def _plain(name: str, tensor: Any) -> Iterator[tuple[str, Any]]:
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass  # torch has no public name for it

    if hasattr(tensor, "full_tensor") or not is_traceable_wrapper_subclass(tensor):
        yield name, tensor
        return
    for key in tensor.__tensor_flatten__()[0]:
        yield from _plain(f"{name}.{key}", getattr(tensor, key))
