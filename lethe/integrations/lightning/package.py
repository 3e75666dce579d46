"""The package of Lightning that is in use: `lightning.pytorch`, or `pytorch_lightning`, which has the same classes under other names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

_NEW, _OLD = "lightning.pytorch", "pytorch_lightning"


def _chosen() -> str:
    if _NEW in sys.modules or _OLD not in sys.modules:
        return _NEW if importlib.util.find_spec("lightning") is not None else _OLD
    return _OLD


if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    Callback = importlib.import_module(_chosen()).Callback


def is_a(thing: object, *names: str) -> bool:
    """Whether a class of one of these names, of either package, is among those of an object.

    Args:
        thing: anything.
        names: of classes.
    """
    return any(kind.__name__ in names and "lightning" in kind.__module__ for kind in type(thing).__mro__)


def overrides(thing: Any, name: str) -> bool:
    """Whether a module, data module or callback has a method of its own in place of Lightning's.

    Args:
        thing: it.
        name: of the method.
    """
    if name in vars(thing):
        return True
    owner = next((kind for kind in type(thing).__mro__ if name in vars(kind)), None)
    return owner is not None and owner.__module__.partition(".")[0] not in ("lightning", "pytorch_lightning", "torch")
