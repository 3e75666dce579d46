"""Guard of the optimiser: it may step only with clipped and noised gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import TensorWeakRef

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.checks.held_parameters import HeldParameters
from lethe.train.core.tensors import local
from lethe.train.core.together.tensor_copies import TensorCopies
from lethe.train.engine.shortened_gradients import ScaledSteps, scaled, shortening
from lethe.train.network.plan import refuse_other_gradients

_INSTEAD = (
    "call engine.backward(losses) once for every micro-batch, and losses.backward() never; in the place of accumulated gradients, "
    "physical_size= of the engine says how many records are on the device at once."
)


class StepGuard:
    """Hooks on an optimiser that let a step pass only with the gradients that were handed over for it, and at the parameters that the step
    before left, both as they were, compared by value. Noisy gradients may have been made shorter (`torch.nn.utils.clip_grad_norm_`).

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
        # Of the last step handed over: its number, its gradients, and copies of them.
        self._step = done
        self._handed: list[TensorWeakRef] = []
        self._copies = TensorCopies(())
        self._scaled = ScaledSteps()
        self._partial = self._moving = False
        self.pending = False
        self._handles: list[RemovableHandle] = []
        optimizer.zero_grad(set_to_none=True)
        self._attach()

    def clear(self) -> None:
        """A new micro-batch: the gradients of the last step go, if they are still there.

        Raises:
            InputError: other gradients are there, or those of the last step were not used.
        """
        if self.pending:
            raise InputError(f"the gradient of step {self._step} was not used.", remedy="call optimizer.step() after each whole batch.")
        ours = self._ids_handed()
        for name, parameter in self._watched():
            if parameter.grad is not None and id(parameter.grad) not in ours:
                raise _foreign(name)
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
        self.close()
        self._attach()
        for parameter in self._named.values():
            parameter.grad = gradients[parameter]
        # Not held: whoever clears them after the step is to have the memory for the next forward pass.
        self._handed = [TensorWeakRef(gradient) for gradient in gradients.values()]
        self._copies = TensorCopies(local(gradients[parameter]) for parameter in self._named.values())
        self._step, self.pending = step, True

    def close(self) -> None:
        """Take the hooks off: the optimiser is an ordinary one again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _attach(self) -> None:
        self._handles = [
            self._optimizer.register_step_pre_hook(self._before),
            self._optimizer.register_step_post_hook(self._after),
        ]

    def _before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _calls_of_step(optimizer) > 1 and self._moving:
            self.refuse_strangers()  # the step of a subclass calls that of its class, and means the same gradients
            return
        self._moving = False
        if getattr(optimizer, "grad_scale", None) is not None or any(isinstance(given, torch.amp.GradScaler) for given in kwargs.values()):
            raise scaled("divided by a GradScaler's number", self._step)
        if any(given is not None and given is not optimizer for given in (*args, *kwargs.values())):
            raise InputError(
                "step: got a closure; what it computes again is not the noisy gradient.", remedy="call step() without arguments."
            )
        if not self.pending:
            self._refuse_nothing_handed()
            return
        self._held.refuse_changes(f"before step {self._step}")
        known = self._ids_handed()
        for name, parameter in self._watched():
            gradient = parameter.grad
            if gradient is not None and id(gradient) not in known:
                raise _foreign(name)
            if gradient is None and name in self._named:
                raise InputError(
                    f"step {self._step}: the noisy gradient of {name} is gone.",
                    source="zero_grad() between engine.backward and optimizer.step",
                    remedy="call optimizer.zero_grad() after optimizer.step().",
                )
        names, now = list(self._named), [local(_gradient_of(parameter)) for parameter in self._named.values()]
        if changed := self._copies.differing(now):
            copies = self._copies.each()
            factors: list[float] = []
            for place in changed:
                factor = shortening(now[place], copies[place])
                if factor is None:
                    raise _foreign(names[place])
                factors.append(factor)
            self._scaled.refuse(factors, [now[place].numel() for place in changed], self._step)
        self._copies = TensorCopies(())
        self._taken()
        self.pending, self._moving = False, True

    def _after(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._moving or _calls_of_step(optimizer) > 1:
            return
        self._moving = False
        self._held.keep()
        self._over()

    def _ids_handed(self) -> set[int]:
        return {id(gradient) for handed in self._handed if (gradient := handed()) is not None}

    def refuse_strangers(self) -> None:
        """Refuse gradients that are not the tensors that were handed over, such as those of `losses.backward()`."""
        known = self._ids_handed()
        for name, parameter in self._watched():
            if parameter.grad is not None and id(parameter.grad) not in known:
                raise _foreign(name)

    def _refuse_nothing_handed(self) -> None:
        """A step without private gradients: refused, unless it moves nothing because the batch is not complete."""
        stray = next((name for name, parameter in self._watched() if parameter.grad is not None), None)
        if self._partial and stray is None:
            return
        if stray is not None and not self._handed:
            raise _foreign(stray)
        if self._step == self._run.total_steps:
            raise InputError(
                f"step: all {self._step} steps of the run are used up; another would cost more privacy than was planned.",
                source="run.steps or run.passes",
                remedy="plan a longer run; after engine.close() the optimiser is an ordinary one again.",
            )
        raise InputError(f"step: there is no private gradient for step {self._step + 1}.", remedy=_INSTEAD)

    def _watched(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self._named.items()
        trained = {id(parameter) for parameter in self._named.values()}
        for group in self._optimizer.param_groups:
            yield from (("another parameter of the optimiser", parameter) for parameter in group["params"] if id(parameter) not in trained)


def _calls_of_step(optimizer: torch.optim.Optimizer) -> int:
    """How many calls of this optimiser's step are under way, by the call stack: a step that raised an error is none."""
    found, frame = 0, inspect.currentframe()
    while frame is not None:
        hooked = frame.f_code.co_name == "wrapper" and frame.f_globals.get("__name__") == torch.optim.Optimizer.__module__
        found += hooked and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return found


def _gradient_of(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


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
        f"{name}: its .grad is not the noisy gradient that engine.backward wrote, or was changed since.",
        source="losses.backward() beside engine.backward(losses), or a change of .grad in place",
        remedy=_INSTEAD + " Noisy gradients may be made shorter by torch.nn.utils.clip_grad_norm_; what else is done to "
        "them belongs into the optimiser.",
    )
