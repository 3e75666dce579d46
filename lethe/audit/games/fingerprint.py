"""Hash of everything that the scores of a game depend on, so that a continued audit cannot mix two games."""

from __future__ import annotations

import hashlib
import io
import pickle
from types import CodeType, FunctionType
from typing import Any

import joblib

from lethe._version import __version__
from lethe.errors import InputError


def game_fingerprint(game: object) -> str:
    """A hash of a picklable object: of its data, its settings, the code of its functions and classes, and the version of Lethe.

    What those functions call is not in it, nor what a class inherits, nor the machine: rounding may differ between two.

    Raises:
        InputError: it cannot be pickled.
    """
    codes = _Codes(io.BytesIO())
    try:
        codes.dump(game)
        content = joblib.hash(game)
    except Exception as error:  # whatever an object's own pickling raises
        raise InputError(
            f"this game has no fingerprint, since it cannot be pickled: {error}",
            source="the argument score_file",
            remedy="define its functions at the top of a module, or say which game it is by the argument game",
        ) from error
    return hashlib.sha256(repr((__version__, content, codes.seen)).encode()).hexdigest()[:16]


class _Codes(pickle.Pickler):
    """Takes down the code of all functions, and of the methods of all classes, that are met while pickling: pickles name them only."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.seen: list[object] = []

    def reducer_override(self, obj: Any) -> Any:
        parts = vars(obj).values() if isinstance(obj, type) else (obj,)
        self.seen += [_constants(part.__code__) for part in parts if isinstance(part, FunctionType)]
        return NotImplemented


def _constants(constant: object) -> object:
    """A constant as text that is the same in every process: sets have no order, and code has an address."""
    if isinstance(constant, CodeType):
        return constant.co_code.hex(), constant.co_names, [_constants(each) for each in constant.co_consts]
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    return [_constants(each) for each in constant] if isinstance(constant, tuple) else repr(constant)
