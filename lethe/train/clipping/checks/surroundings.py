"""PyTorch features switched off during the recorded forward pass, because the engine cannot see through them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import torch
from torch.autograd.graph import disable_saved_tensors_hooks

from lethe.train.clipping.unfollowed import UnfollowedError

_MARK = "lethe: saved_tensors_hooks in a recording"


@contextmanager
def surroundings() -> Generator[None]:
    """Within: hooks on what autograd keeps are refused, and compiled modules and functions run eagerly.

    A hook on saved tensors may keep one number for a whole batch, or compute a block again; autograd believes what it is given back. A
    compiler would trace the engine's hooks, which takes longer than it saves.

    Raises:
        InputError: `torch.autograd.graph.saved_tensors_hooks`, or what is made of them, was entered within or is active around.
    """
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # else nothing was compiled, and importing it takes seconds
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            stack.enter_context(disable_saved_tensors_hooks(_MARK))
            yield
        except RuntimeError as error:
            if _MARK not in str(error) and "saved tensors hooks" not in str(error).lower():
                raise
            raise UnfollowedError(
                "saved_tensors_hooks are active while records pass through the model: what autograd keeps for the backward pass may then "
                "mix them, and nothing would show it.",
                source="torch.autograd.graph.saved_tensors_hooks or save_on_cpu, or a checkpoint",
                remedy="switch them off, and take smaller micro-batches if memory is short.",
            ) from error
