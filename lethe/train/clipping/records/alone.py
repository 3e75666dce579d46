"""Record by record: a record passes through the model alone, and its gradient is what plain autograd gives."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from lethe.errors import HypothesisError, InputError
from lethe.train.clipping.rules.parts import Part, Rows
from lethe.train.clipping.rules.rule import wide
from lethe.train.core.comparison import ALLOWED_IN_SHAPE, FAILURES, arithmetic, close
from lethe.train.model_state.undisturbed import Rewind, undisturbed
from lethe.train.model_state.untouched_state import UntouchedState


class Alone:
    """Gradients of records that pass through a model one at a time.

    A gradient is a function of its record alone if the model keeps nothing of the records before. That is looked at, at records 1, 2, 4, 8
    and so on: buffers and parameters must be what they were before the forward pass, and the record after is asked for twice, with the
    record before in between, which must give the same outputs.

    Args:
        model: whose trained parameters' gradients are wanted.
        verify: False: nothing is looked at.
    """

    def __init__(self, model: nn.Module, *, verify: bool) -> None:
        self._model, self._verify = model, verify
        self._state: UntouchedState | None = None
        self._before: _Call | None = None
        self.records = 0

    @contextmanager
    def recording(self) -> Generator[None]:
        """Within: one record passes through the model.

        Raises:
            HypothesisError: the model gives another output for the same record when it is shown another in between.
        """
        number = self.records + 1
        due = self._verify and number & (number - 1) == 0
        self._state = UntouchedState(self._model, trained=True) if due else None
        shown, self._before = self._before, None
        calls: list[_Call] = []
        handles: list[Any] = []
        if due or shown is not None:
            states: list[Rewind] = []
            handles = [
                self._model.register_forward_pre_hook(lambda *_: states.append(Rewind(_devices(self._model)))),
                self._model.register_forward_hook(
                    lambda module, args, kwargs, output: calls.append(_Call(args, kwargs, output, states.pop())),
                    with_kwargs=True,
                ),
            ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        if shown is not None and calls:
            _require_forgetful(self._model, shown, calls[0])
        self._before = calls[0] if due and calls else None

    def gradients(self, losses: Tensor, names: Mapping[nn.Parameter, str]) -> dict[nn.Parameter, Part]:
        """The gradient of one record's loss, as parts of a batch of one; parameters without any are left out.

        Every `.grad` is afterwards what it was.

        Args:
            losses: shape (1,).
            names: the trained parameters.
        Raises:
            HypothesisError: the forward pass wrote what it saw into a buffer or a parameter.
            InputError: no trained parameter gets a gradient.
        """
        state, self._state = self._state, None
        if state is not None:
            state.refuse_changes()
        before = [(parameter, parameter.grad) for parameter in names]
        for parameter in names:
            parameter.grad = None
        try:
            # Not autograd.grad: blocks that compute their forward pass again write gradients by a backward pass of their own.
            losses.sum().backward()
            found = {parameter: parameter.grad for parameter in names if parameter.grad is not None}
        finally:
            for parameter, gradient in before:
                parameter.grad = gradient
        if not found:
            raise InputError(
                "the losses do not come from the last recording: no trained parameter gets a gradient from them.",
                remedy="call backward once after each recording (with engine.recording():), with the losses of its forward pass.",
            )
        self.records += 1
        with torch.no_grad():
            # A scalar counts as a vector of one.
            return {
                parameter: Rows(wide(gradient.to_dense()).reshape(1, *(parameter.shape or (1,)))) for parameter, gradient in found.items()
            }


class _Call:
    """A call of the model: its arguments, its outputs and the random generators before it."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, rewind: Rewind) -> None:
        self.args, self.kwargs = tree_map(_kept, (args, kwargs))
        self.outputs = _tensors(output)
        self.rewind = rewind

    def again(self, model: nn.Module) -> list[Tensor]:
        """The outputs of another call with the same arguments and the same random numbers."""
        self.rewind()
        args, kwargs = tree_map(_kept, (self.args, self.kwargs))
        return _tensors(model(*args, **kwargs))


def _require_forgetful(model: nn.Module, shown: _Call, asked: _Call) -> None:
    with torch.no_grad(), undisturbed(model):
        try:
            before = asked.again(model)
            shown.again(model)
            after = asked.again(model)
        except FAILURES:
            return  # it takes no call beside the caller's own; what it wrote is looked for all the same
    precision = arithmetic(next(model.parameters()).device)
    for told in (before, after):
        same = [one.shape == other.shape for one, other in zip(told, asked.outputs, strict=False)]
        if not all(same) or not all(
            bool(close(one[None], other[None], other, ALLOWED_IN_SHAPE, precision).all())
            for one, other in zip(told, asked.outputs, strict=False)
        ):
            raise HypothesisError(
                "the model makes another output of the same record when it was shown another one in between: it keeps what it saw, of "
                "which nothing is clipped or noised.",
                source="the check of records that pass through the model one by one: a record, another one, and the first again",
                remedy="take out what the model keeps of one record for the next (a hidden state, a memory, a running mean).",
            )


def _tensors(output: Any) -> list[Tensor]:
    entries = list(output.values()) if isinstance(output, Mapping) else tree_flatten(output)[0]
    return [entry.detach().clone() for entry in entries if isinstance(entry, Tensor) and entry.is_floating_point()]


def _kept(entry: Any) -> Any:
    return entry.detach().clone() if isinstance(entry, Tensor) else entry


def _devices(model: nn.Module) -> list[int]:
    return sorted({parameter.device.index or 0 for parameter in model.parameters() if parameter.device.type == "cuda"})
