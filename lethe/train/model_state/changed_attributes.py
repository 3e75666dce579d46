"""Declaration of module attributes that changed during training, since they could hold records."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Set
from typing import Any

from torch import Tensor, nn

from lethe.train.core.tensor_fingerprint import fingerprint
from lethe.train.model_state.module_attributes import computed_attributes

_SHOWN = 6


def attribute_digests(model: nn.Module) -> dict[str, bytes]:
    """A digest of every attribute of every module as pickle writes it, parameters, buffers and modules left out.

    A count of calls, a temperature, a generator's state, a text: each changes honestly in some models, and could hold a record in others.
    What cannot be pickled is in no file that torch.save(model) writes; of it the type is told.
    """
    standard = {*vars(nn.Module()), "training"}
    own = {id(part) for part in (*model.modules(), *model.parameters(), *model.buffers())}
    found: dict[str, bytes] = {}
    for path, module in model.named_modules():
        computed = set(computed_attributes(module))
        for name, value in vars(module).items():
            if name not in standard | computed and id(value) not in own:
                found[f"{path}.{name}" if path else name] = _digest(value, own)
    return found


def changed_attributes(before: dict[str, bytes], now: dict[str, bytes], *, also: Set[str] = frozenset()) -> str | None:
    """A statement that names the attributes that are new or changed; None if there are none.

    Args:
        before, now: what `attribute_digests` gave at the start and now.
        also: names that differed for a time in between.
    """
    changed = [name for name, digest in now.items() if before.get(name) != digest]
    changed += sorted(also - set(changed))
    if not changed:
        return None
    others = f" and {len(changed) - _SHOWN} others" if len(changed) > _SHOWN else ""
    return (
        f"attributes of the model's modules that changed during training, {', '.join(changed[:_SHOWN])}{others}, tell nothing of the "
        "records, or are not released: they are in no state dict, but in a file that torch.save(model) writes"
    )


class _Hashed:
    """A file that keeps a digest of what is written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)

    def write(self, raw: bytes) -> int:
        """Take bytes in."""
        self.hash.update(raw)
        return len(raw)


class _ByValue(pickle.Pickler):
    def __init__(self, file: Any, own: set[int]) -> None:
        super().__init__(file)
        self.fast = True  # by value: without it equal values are written in two ways, as they are one object or two
        self._own = own

    def persistent_id(self, obj: Any) -> Any:
        """Parameters, buffers and modules are compared elsewhere; other tensors by their bits."""
        if id(obj) in self._own:
            return "own"
        return repr(fingerprint(obj)) if isinstance(obj, Tensor) else None


def _digest(value: Any, own: set[int]) -> bytes:
    file = _Hashed()
    try:
        _ByValue(file, own).dump(value)
    except Exception:  # whatever objects make of being pickled
        return f"not to be pickled: {type(value).__qualname__}".encode()
    return file.hash.digest()
