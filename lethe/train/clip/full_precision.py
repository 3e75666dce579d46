"""Switches TF32 and bfloat16 off while norms and sums are computed, so that a rounded product cannot understate a gradient's norm.
`Clipper` enters `full_precision` around measuring and adding; report.py asks the other two functions whether to warn about the model.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

import torch

T = TypeVar("T")

# What a newer switch says where nobody asked for less.
_FULL = frozenset(("ieee", "none"))
_SAID = attrgetter("fp32_precision")

# The switches of torch 2.9 and later, in the order in which they are set back.
_BACKENDS: Any = torch.backends
_NEWER: list[Any] = (
    [_BACKENDS.cuda.matmul, _BACKENDS.cudnn.conv, _BACKENDS.cudnn.rnn, _BACKENDS.mkldnn.matmul, _BACKENDS.mkldnn.conv]
    if hasattr(_BACKENDS.cuda.matmul, "fp32_precision")
    else []
)


@contextmanager
def full_precision() -> Generator[None]:
    """Within: products of float32 numbers are float32 products, on every device; TF32 and bfloat16 are off."""
    product = _older(torch.get_float32_matmul_precision)
    # On a machine whose GPU was not used: the switch of its convolutions is on by default.
    if product == "highest" and not torch.cuda.is_initialized() and _FULL.issuperset(map(_SAID, _NEWER[3:])):
        yield
        return
    convolutions, before = tf32_in_convolutions(), list(map(_SAID, _NEWER))
    try:
        # The older switches first: torch refuses to answer where they disagree with the newer ones.
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        for owner in _NEWER:
            owner.fp32_precision = "ieee"
        yield
    finally:
        if product is not None:
            torch.set_float32_matmul_precision(product)
        if convolutions is not None:
            torch.backends.cudnn.allow_tf32 = convolutions
        for owner, value in zip(_NEWER, before, strict=True):
            owner.fp32_precision = value


def tf32_in_products() -> bool:
    """Whether a GPU may round the factors of matrix products of float32 numbers to ten bits, or so it may be."""
    older = _older(torch.get_float32_matmul_precision)
    return older not in ("highest", None) or not _FULL.issuperset(map(_SAID, _NEWER[:1]))


def tf32_in_convolutions() -> bool | None:
    """Whether a GPU may round the factors of convolutions to ten bits, as PyTorch lets it by default; None: the switches disagree."""
    return _older(lambda: torch.backends.cudnn.allow_tf32)


def _older(switch: Callable[[], T]) -> T | None:
    try:
        return switch()
    except RuntimeError:  # the newer switches were set apart
        return None
