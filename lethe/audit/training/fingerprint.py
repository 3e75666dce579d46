"""What tells one game from another: a hash of all that its scores follow from."""

from __future__ import annotations

import hashlib
import io
import pickle
from types import CodeType, FunctionType
from typing import Any

import joblib

from lethe._version import __version__
from lethe.errors import InputError


def fingerprint(game: object) -> str:
    """A hash of a picklable object: of its data, its settings, the code of the functions in it, and the version of Lethe.

    What those functions call is not in it, nor is the machine: rounding may differ between two.

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
    """Takes down the code of every function that is met while pickling, which pickles name and do not hold."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.seen: list[object] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            self.seen.append(_constants(obj.__code__))
        return NotImplemented


def _constants(code: CodeType) -> object:
    nested = [_constants(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return code.co_code.hex(), code.co_names, nested
