"""PyTorch features switched off during the recorded forward pass, because the engine cannot see through them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

from lethe.train.clipping.checks.graphs import Node, of_kind
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import FAILURES

T = TypeVar("T")

_MARK = "lethe: saved_tensors_hooks in a recording"


@contextmanager
def eagerly() -> Generator[None]:
    """Within: compiled modules and functions run as they are written.

    A compiler would trace the engine's hooks and checks, which takes longer than it saves or fails, and what it makes of a loss hides the
    operations that the checks read off the graph.
    """
    if "torch._dynamo" not in sys.modules:  # nothing was compiled, and importing it takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def refuse_compiled(nodes: Iterable[Node]) -> None:
    """Refuse losses in whose graph something was compiled: what it does with records is not to be seen.

    Args:
        nodes: of the graph from the losses to its leaves.
    Raises:
        InputError: something was.
    """
    if any(True for _ in of_kind(nodes, "CompiledFunction".__eq__)):
        raise UnfollowedError(
            "a part of the losses' computation ran compiled, and hides what it does with records.",
            source="the graph that autograd recorded: torch.compile, outside of the recording",
            remedy="compute the losses within the recording, where compiled functions run as they are written.",
        )


@contextmanager
def surroundings() -> Generator[None]:
    """Within: hooks on what autograd keeps are refused, and compiled modules and functions run eagerly.

    A hook on saved tensors may keep one number for a whole batch, or compute a block again; autograd believes what it is given back.

    Raises:
        InputError: `torch.autograd.graph.saved_tensors_hooks`, or what is made of them, was entered within or is active around.
    """
    with ExitStack() as stack:
        stack.enter_context(eagerly())
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


class Unkept:
    """Makes forward passes of whose graphs nothing is kept for a backward pass, where nobody will ask for one: memory fresh from the
    operating system may cost a fifth of a pass. All else is as in training: gradients are enabled, and there is a graph.

    A model that differentiates on its own finds nothing there; its passes are made again, and from then on keep everything.
    """

    def __init__(self) -> None:
        self._differentiates = False

    def __call__(self, called: Callable[[], T], anew: Callable[[], object]) -> T:
        """What a pass gives.

        Args:
            called: the pass.
            anew: called before it is made again.
        """
        if not self._differentiates:
            with suppress(*FAILURES), _nothing_kept() as asked:
                found = called()
                if not asked:
                    return found
            anew()
        found = called()
        self._differentiates = True
        return found


@contextmanager
def _nothing_kept() -> Generator[list[bool]]:
    """Within: autograd keeps no numbers in its graph; what is given is empty unless they were asked for."""
    asked: list[bool] = []

    def refused(kept: object) -> Tensor:
        asked.append(True)
        raise RuntimeError("nothing is kept for a backward pass here")

    own: Any = torch._C._autograd  # pyright: ignore[reportAttributeAccessIssue]
    disabled = own._saved_tensors_hooks_get_disabled_error_message()
    own._saved_tensors_hooks_enable()  # in a recording they are not
    try:
        with saved_tensors_hooks(lambda tensor: None, refused):
            yield asked
    finally:
        if disabled is not None:
            own._saved_tensors_hooks_disable(disabled)
