"""Full precision for products that are measured or added, whatever the model computes in."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

# What a newer switch says where nobody asked for less.
_FULL = frozenset(("ieee", "none"))

_MKL: Any = torch.backends.mkldnn
_NEWER = hasattr(torch.backends.cuda.matmul, "fp32_precision")


@contextmanager
def full_precision() -> Generator[None]:
    """Within: products of float32 numbers are float32 products, on every device; TF32 and bfloat16 are off."""
    if _is_full():
        yield
        return
    product, owners = _older_switch(), _owners()
    before = [owner.fp32_precision for owner in owners]
    convolutions = tf32_in_convolutions()
    try:
        # The older switches first: torch refuses to answer where they disagree with the newer ones.
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        for owner in owners:
            owner.fp32_precision = "ieee"
        yield
    finally:
        if product is not None:
            torch.set_float32_matmul_precision(product)
        if convolutions is not None:
            torch.backends.cudnn.allow_tf32 = convolutions
        for owner, value in zip(owners, before, strict=True):
            owner.fp32_precision = value


def _is_full() -> bool:
    """Whether nobody asked for less, on a machine whose GPU was not used: the switch of its convolutions is on by default."""
    if torch.cuda.is_initialized() or (_NEWER and (_MKL.matmul.fp32_precision not in _FULL or _MKL.conv.fp32_precision not in _FULL)):
        return False
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # the newer switches were set apart
        return False


def _owners() -> list[Any]:
    """The switches of torch 2.9 and later, in the order in which they are set back."""
    backends: Any = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):
        return []
    return [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul, backends.mkldnn.conv]


def tf32_in_products() -> bool:
    """Whether a GPU may round the factors of matrix products of float32 numbers to ten bits, or so it may be."""
    newer = [owner.fp32_precision for owner in _owners()[:1]]
    return _older_switch() not in ("highest", None) or not _FULL.issuperset(newer)


def _older_switch() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer switches were set apart
        return None


def tf32_in_convolutions() -> bool | None:
    """Whether a GPU may round the factors of convolutions to ten bits, as PyTorch lets it by default; None: the switches disagree."""
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # the newer switches were set apart
        return None
