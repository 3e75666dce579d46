"""Weights as they are given: tensors by name, or files of .npz, .pt, .pth and .safetensors. Nothing in a file is executed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lethe.certificates.weights.digest import RawTensor
from lethe.certificates.weights.safetensors import read_safetensors
from lethe.documents.strict import as_path
from lethe.errors import InputError, MissingExtraError

Tensors = dict[str, RawTensor | np.ndarray[Any, Any]]

_LINEAR = {"weights", "intercept"}
_BESIDES = {"class_names", "loss", "feature_norm"}  # public settings that `lethe train` writes into the same file


def as_tensors(weights: object) -> Tensors:
    """Named tensors, from the path of a file, or from a mapping of names to arrays or PyTorch tensors, such as a state dict.

    Raises:
        InputError: neither of the two, or a file that holds no weights.
        MissingExtraError: the file needs PyTorch, which is not installed.
    """
    if isinstance(weights, str | os.PathLike):
        return read_weights(weights)
    if not isinstance(weights, Mapping):
        raise InputError(
            f"weights: got {type(weights).__name__}; it needs the path of a file or tensors by name.", remedy="give model.state_dict()."
        )
    if all(isinstance(entry, np.ndarray | np.generic | int | float | RawTensor) for entry in weights.values()):
        return {name: entry if isinstance(entry, RawTensor) else np.asarray(entry) for name, entry in weights.items()}
    return dict(_torch().raw_state(weights))


def read_weights(path: str | os.PathLike[str]) -> Tensors:
    """The tensors of a file, by name.

    Args:
        path: .npz (without pickles), .pt or .pth (a state dict, read with weights_only=True) or .safetensors. Of the file of a linear
            model that `lethe train` writes, the weights and the intercept; the rest are public settings.
    Raises:
        InputError: another suffix, or a file that cannot be read or holds anything else than tensors by name.
        MissingExtraError: PyTorch is needed and not installed.
    """
    file = as_path(path)
    readers = {".npz": _npz, ".pt": _pt, ".pth": _pt, ".safetensors": read_safetensors}
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
    torch_tensors = _torch()
    try:
        state = torch_tensors.torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever PyTorch's reader stumbles over, the file is at fault
        raise _unreadable(file, error) from error
    if not isinstance(state, Mapping):
        raise InputError(f"{file} holds {type(state).__name__}; it needs tensors by name.", remedy="save model.state_dict().")
    return torch_tensors.raw_state(state)


def _torch() -> Any:
    """The module that knows PyTorch's tensors."""
    try:
        from lethe.certificates.weights import torch_tensors
    except ImportError as error:
        raise MissingExtraError("these weights need PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"') from error
    return torch_tensors


def _unreadable(file: Path, error: Exception) -> InputError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(
        f"{file} cannot be read as weights: {reason}", remedy="give a file of plain tensors by name, without pickled objects."
    )
