"""Call sites: from which lines of code, through which functions, something is asked while a model computes."""

from __future__ import annotations

import sys
from collections.abc import Hashable

from torch import nn

_CALL = nn.Module._call_impl.__code__


def call_site(model: nn.Module | None) -> Hashable:
    """The functions between the model's innermost call and this one, and the place in each; all that are running outside of any such call.

    Args:
        model: where the walk ends.
    """
    found: list[Hashable] = []
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code is _CALL and frame.f_locals.get("self") is model:
            break
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)
