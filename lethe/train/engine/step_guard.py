"""Guard of the optimiser: it may step only with clipped and noised gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import TensorWeakRef

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.checkpoints.held_parameters import HeldParameters
from lethe.train.core.tensors import local
from lethe.train.network.plan import refuse_other_gradients

_INSTEAD = (
    "call engine.backward(batch) once for every micro-batch, and loss.backward() never; in the place of accumulated gradients, "
    "physical_size= of the engine says how many records are on the device at once."
)
_SAMPLE = 64  # numbers of a gradient by which a GradScaler's division is told


class StepGuard:
    """Hooks on an optimiser and its parameters: a step passes only with the gradients that were handed over for it, and no backward pass
    but the engine's adds anything to them.

    Args:
        optimizer: the user's.
        named: the parameters that it trains privately.
        run: how many steps there are.
        held: the same parameters, as they are between steps.
        taken: called when a step is about to be taken.
        over: called when it was taken.
        done: steps that were taken before, where training is taken up again.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named: Mapping[str, nn.Parameter],
        run: Run,
        held: HeldParameters,
        taken: Callable[[], None],
        over: Callable[[], None],
        *,
        done: int = 0,
    ) -> None:
        self._optimizer, self._named, self._run, self._held, self._taken = optimizer, dict(named), run, held, taken
        self._over = over
        self._step = done  # the last that was handed over
        self._handed: list[TensorWeakRef] = []
        self._sample = torch.empty(0)
        self._partial = self._moving = self._computing = False
        self.pending = False
        optimizer.zero_grad(set_to_none=True)
        self._on_steps: list[RemovableHandle] = []
        self._on_gradients = [parameter.register_post_accumulate_grad_hook(self._accumulated) for parameter in named.values()]
        self._attach()

    @contextmanager
    def computing(self) -> Generator[None]:
        """Within: backward passes are the engine's own."""
        self._computing = True
        try:
            yield
        finally:
            self._computing = False

    def _accumulated(self, parameter: Tensor) -> None:
        if not self._computing:
            name = next(name for name, own in self._named.items() if own is parameter)
            parameter.grad = None
            raise _foreign(name)

    def clear(self) -> None:
        """A new micro-batch: the gradients of the last step go, if they are still there.

        Raises:
            InputError: other gradients are there, or those of the last step were not used.
        """
        if self.pending:
            raise InputError(f"the gradient of step {self._step} was not used.", remedy="call optimizer.step() after each whole batch.")
        self.refuse_strangers()
        for _, parameter in self._watched():
            parameter.grad = None
        self._handed.clear()
        self._partial = False

    def wait(self) -> None:
        """More micro-batches are to come: until then a step changes nothing, since there are no gradients."""
        self._partial = True

    def hand(self, step: int, gradients: Mapping[nn.Parameter, Tensor]) -> None:
        """Hand over the noisy mean gradients of step number `step`.

        Raises:
            InputError: the optimiser asks for gradients of its own.
        """
        refuse_other_gradients(self._optimizer)
        # Anew each time: after hooks of the user's own, which are part of the step.
        self._detach()
        self._attach()
        for parameter in self._named.values():
            parameter.grad = gradients[parameter]
        # Not held: whoever clears them after the step is to have the memory for the next forward pass.
        self._handed = [TensorWeakRef(gradient) for gradient in gradients.values()]
        self._sample = _sample(self._first()).clone()
        self._step, self.pending = step, True

    def close(self) -> None:
        """Take the hooks off: the optimiser is an ordinary one again."""
        self._detach()
        for handle in self._on_gradients:
            handle.remove()

    def _attach(self) -> None:
        self._on_steps = [self._optimizer.register_step_pre_hook(self._before), self._optimizer.register_step_post_hook(self._after)]

    def _detach(self) -> None:
        for handle in self._on_steps:
            handle.remove()

    def _before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if getattr(optimizer, "grad_scale", None) is not None or any(isinstance(given, torch.amp.GradScaler) for given in kwargs.values()):
            raise _scaled(self._step)
        if any(given is not None and given is not optimizer for given in (*args, *kwargs.values())):
            raise InputError(
                "step: got a closure; what it computes again is not the noisy gradient.", remedy="call step() without arguments."
            )
        self.refuse_strangers()
        if not self.pending:
            if not self._moving:  # the step of a subclass calls that of its class, and means the same gradients
                self._refuse_nothing_handed()
            return
        self._held.refuse_changes(f"before step {self._step}")
        if gone := [name for name, parameter in self._named.items() if parameter.grad is None]:
            raise InputError(
                f"step {self._step}: the noisy gradient of {gone[0]} is gone.",
                source="zero_grad() between engine.backward and optimizer.step",
                remedy="call optimizer.zero_grad() after optimizer.step().",
            )
        self._refuse_scaled()
        self._taken()
        self.pending, self._moving = False, True

    def _after(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._held.keep()
        if self._moving:
            self._over()
        self._moving = False

    def refuse_strangers(self) -> None:
        """Refuse gradients that are not the tensors that were handed over."""
        known = {id(gradient) for handed in self._handed if (gradient := handed()) is not None}
        for name, parameter in self._watched():
            if parameter.grad is not None and id(parameter.grad) not in known:
                raise _foreign(name)

    def _refuse_nothing_handed(self) -> None:
        """A step without private gradients: refused, unless it moves nothing because the batch is not complete."""
        if self._partial:
            return
        if self._step == self._run.total_steps:
            raise InputError(
                f"step: all {self._step} steps of the run are used up; another would cost more privacy than was planned.",
                source="run.steps or run.passes",
                remedy="plan a longer run; after engine.close() the optimiser is an ordinary one again.",
            )
        raise InputError(f"step: there is no private gradient for step {self._step + 1}.", remedy=_INSTEAD)

    def _refuse_scaled(self) -> None:
        """Refuse what a GradScaler divided by its scale, a power of two: privacy allows it, but next to nothing would be trained."""
        now = _sample(self._first())
        if torch.equal(now, self._sample) or not self._sample.any():
            return
        largest = int(self._sample.abs().argmax())
        ratio = float(now[largest]) / float(self._sample[largest])
        if 0 < ratio < 1 and math.frexp(ratio)[0] == 0.5 and torch.equal(now, self._sample * ratio):
            raise _scaled(self._step)

    def _first(self) -> Tensor:
        gradient = next(iter(self._named.values())).grad
        assert gradient is not None
        return local(gradient)

    def _watched(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self._named.items()
        trained = {id(parameter) for parameter in self._named.values()}
        for group in self._optimizer.param_groups:
            yield from (("another parameter of the optimiser", parameter) for parameter in group["params"] if id(parameter) not in trained)


def _sample(gradient: Tensor) -> Tensor:
    return gradient.reshape(-1)[:_SAMPLE].float().cpu()


def _scaled(step: int) -> InputError:
    return InputError(
        f"step {step}: the noisy gradients are divided by a GradScaler's number before the optimiser's step.",
        source="torch.amp.GradScaler, which divides gradients by the scale of a loss",
        remedy="leave the scaler out, since noisy gradients are those of the losses as they are, and compute under torch.autocast in "
        "bfloat16, which needs no scaling.",
    )


def refuse_another_engine(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimiser whose steps another engine guards.

    Raises:
        InputError: it does.
    """
    hooks = getattr(optimizer, "_optimizer_step_pre_hooks", {}).values()
    if any(isinstance(getattr(hook, "__self__", None), StepGuard) for hook in hooks):
        raise InputError(
            "optimizer: it belongs to another engine, which takes no gradients but its own.",
            source="an earlier make_private with the same optimiser, as in a notebook's cell that was run again",
            remedy="call close() on that engine first, or make the model and the optimiser anew: what it trained has been paid for, and "
            "training the same model on adds to that.",
        )


def _foreign(name: str) -> InputError:
    return InputError(
        f"{name}: its .grad is not the noisy gradient that engine.backward wrote.",
        source="loss.backward() beside engine.backward(batch), or a .grad of one's own",
        remedy=_INSTEAD,
    )
