"""Products that are measured or added are float32 products, whatever the model computes in; and the user's switches stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lethe.train.clipping.rules import precision


def _product(value: str) -> None:
    torch.set_float32_matmul_precision(value)


def _on_cpu(value: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = value  # pyright: ignore[reportAttributeAccessIssue]


def _convolutions(value: str) -> None:
    torch.backends.mkldnn.conv.fp32_precision = value  # pyright: ignore[reportAttributeAccessIssue]


def _everywhere(value: str) -> None:
    torch.backends.fp32_precision = value  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="the newer switches came with PyTorch 2.9")
@pytest.mark.parametrize(
    ("switch", "less", "back"),
    [
        (_product, "medium", "highest"),
        (_product, "high", "highest"),
        (_on_cpu, "bf16", "none"),
        (_convolutions, "bf16", "none"),
        (_everywhere, "tf32", "none"),
        (_everywhere, "none", "none"),
    ],
)
def test_products_are_taken_in_full_whatever_was_asked_for(switch: Callable[[str], None], less: str, back: str) -> None:
    backends: Any = torch.backends
    owners = [backends.mkldnn.matmul, backends.mkldnn.conv, *([backends.cuda.matmul] if torch.cuda.is_available() else [])]

    def told() -> list[str]:
        return [owner.fp32_precision for owner in owners]

    try:
        switch(less)
        asked = told()
        with precision.full_precision():
            assert {"ieee", "none"}.issuperset(told())
            assert _older() in ("highest", None)
        assert told() == asked
    finally:
        switch(back)
        for owner in (*owners, backends.cuda.matmul):  # what was inherited is set by itself since
            owner.fp32_precision = "none"


def test_so_it_is_before_there_were_newer_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_owners", list)
    try:
        torch.set_float32_matmul_precision("medium")
        with precision.full_precision():
            assert _older() == "highest"
        assert _older() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "none"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("used", [False, True])
def test_where_a_gpu_was_used_its_convolutions_are_asked_for_as_well(monkeypatch: pytest.MonkeyPatch, used: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    assert torch.backends.cudnn.allow_tf32  # by default
    with precision.full_precision():
        assert torch.backends.cudnn.allow_tf32 is not used
    assert torch.backends.cudnn.allow_tf32


def _older() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it disagrees with the newer ones
        return None
