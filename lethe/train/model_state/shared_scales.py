"""Refusal of quantised layers that round one record's numbers by those of the others."""

from __future__ import annotations

from functools import lru_cache

from torch import nn

from lethe.errors import InputError

_THRESHOLD = "Linear8bitLt"
_DYNAMIC = ("torch.ao.nn.quantized.dynamic", "torch.ao.nn.intrinsic.quantized.dynamic")


@lru_cache(4096)  # asked of every module in every step
def may_share_a_scale(kind: type) -> bool:
    """Whether modules of a class may be such as `refuse_shared_scale` refuses."""
    kinds = kind.__mro__
    return any(kind.__module__.startswith(_DYNAMIC) or kind.__name__ == _THRESHOLD for kind in kinds)


def refuse_shared_scale(described: str, module: nn.Module) -> None:
    """Refuse a layer whose rounding of what it is given depends on the whole batch.

    torch.ao's dynamic layers take one scale from all numbers of the batch. bitsandbytes' Linear8bitLt with a threshold leaves a column
    unrounded for all rows as soon as one row has a large number there. It is told by its class's name, so that it need not be installed.

    Args:
        described: the module, for an error.
        module: of the model, alone.
    Raises:
        InputError: it is such a layer.
    """
    kinds = type(module).__mro__
    if any(kind.__module__.startswith(_DYNAMIC) for kind in kinds):
        raise InputError(
            f"{described} rounds what it is given to one scale for the whole batch, so that a record's outputs depend on the others.",
            source="dynamic quantisation by torch.ao.quantization",
            remedy="quantise the weights alone, or give each row a scale of its own.",
        )
    # PEFT calls its adapter of such a layer by the same name; that one is no nn.Linear.
    if isinstance(module, nn.Linear) and any(kind.__name__ == _THRESHOLD for kind in kinds):
        threshold = getattr(getattr(module, "state", None), "threshold", None)
        if threshold != 0:
            raise InputError(
                f"{described} has threshold = {threshold}: where one record has a number above it, the column is rounded in another way "
                "for all records.",
                source="LLM.int8() of bitsandbytes",
                remedy="load the model with BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0).",
            )
