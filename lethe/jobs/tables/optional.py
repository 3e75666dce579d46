"""Modules that only some tables need."""

from __future__ import annotations

import importlib
from types import ModuleType

from lethe.errors import MissingExtraError


def extra(module: str) -> ModuleType:
    """An optional module.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module.split('.')[0]} is needed and not installed.", remedy='pip install "lethe-dp[train]"') from error
