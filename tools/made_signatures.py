"""Signatures and docstrings that are made when a class is, for the reference, whose reader sees only sources.

Dataclasses, pydantic models and estimators take parameters from fields, also inherited ones; estimators merge the Args of their bases.
"""

import importlib
import inspect
from typing import Any

import griffe
from pydantic import BaseModel

_KINDS = {kind: griffe.ParameterKind(kind.description) for kind in inspect._ParameterKind}


def _shown(value: object) -> str | None:
    if value is inspect.Parameter.empty:
        return None
    # A default whose repr is an address (a factory, a marker) tells nothing.
    return "..." if "<" in repr(value) else repr(value)


def _constructor(cls: type) -> list[griffe.Parameter]:
    return [
        griffe.Parameter(parameter.name, kind=_KINDS[parameter.kind], default=_shown(parameter.default))
        for parameter in inspect.signature(cls).parameters.values()
    ]


class MadeSignatures(griffe.Extension):
    """Takes the signature and the docstring of each class from the class itself."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called for every class that was read."""
        if cls.parent is None or not cls.parent.is_module or cls.name.startswith("_") or not cls.path.startswith("lethe."):
            return
        made = getattr(importlib.import_module(cls.parent.path), cls.name)
        docstring = inspect.getdoc(made)
        if docstring and cls.docstring is not None:
            cls.docstring = griffe.Docstring(
                docstring, parent=cls, parser=cls.docstring.parser, parser_options=cls.docstring.parser_options
            )
        if "__init__" in cls.members or not ("__init__" in vars(made) or issubclass(made, BaseModel)):
            return
        constructor = griffe.Function("__init__", parameters=griffe.Parameters(*_constructor(made)))
        cls.set_member("__init__", constructor)
