"""Guard of the optimiser in a user's loop: it may step only with the noisy gradients of `LoopState`, which puts the guard on. Without it a
stray `loss.backward()` would add an unclipped gradient unnoticed.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import TensorWeakRef

from lethe.errors import InputError
from lethe.train.network.plan import refuse_other_gradients
from lethe.train.network.trainer import Trainer

_INSTEAD = "engine.backward(batch) for every micro-batch, and loss.backward() never; accumulate by TrainOptions(physical_size=64)."


class StepGuard:
    """Hooks on an optimiser and its parameters: a step passes only with the gradients that were handed over for it, and no backward
    pass but the engine's adds anything to them. What clips or changes them in their places is post-processing.

    Attributes:
        step: the last whose gradients were handed over.
        partial: whether more micro-batches of a step are to come: until then a step changes nothing, since there are no gradients.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, trainer: Trainer, on_step: Callable[[], None]) -> None:
        self._optimizer, self._named, self._total, self._held = optimizer, dict(trainer.named), trainer.run.total_steps, trainer.held
        self._taken, self.step = on_step, trainer.done
        self._handed: dict[str, TensorWeakRef] = {}
        self._moving = self._computing = False
        self._parts: tuple[torch.optim.Optimizer, ...] = getattr(optimizer, "parts", (optimizer,))
        self._waiting: list[torch.optim.Optimizer] = []  # for the step whose gradients were handed over
        self.partial = False
        optimizer.zero_grad(set_to_none=True)
        self._on_gradients = [parameter.register_post_accumulate_grad_hook(self._accumulated) for parameter in self._named.values()]
        self._on_steps: list[RemovableHandle] = []
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
        # Between steps a backward pass may be anybody's, such as of a later training: what it leaves is refused by the next call.
        if not self._computing and (self.pending or self.partial):
            parameter.grad = None
            raise _foreign(next(name for name, parameter_of_name in self._named.items() if parameter_of_name is parameter))

    def clear(self) -> None:
        """A new micro-batch: the gradients of the last step go, if they are still there; others are refused."""
        self._refuse_strangers()
        for parameter in self._named.values():
            parameter.grad = None
        self._handed.clear()
        self.partial = False

    def hand(self, step: int, gradients: Mapping[nn.Parameter, Tensor]) -> None:
        """Hand over the noisy mean gradients of step number `step`, unless the optimiser asks for gradients of its own."""
        refuse_other_gradients(self._optimizer)
        self._attach()
        for name, parameter in self._named.items():
            if parameter not in gradients:  # frozen for this step
                continue
            parameter.grad = gradient = gradients[parameter]
            # Not held: whoever clears them after the step is to have the memory for the next forward pass.
            self._handed[name] = TensorWeakRef(gradient)
        self.step, self._waiting = step, list(self._parts)

    def close(self) -> None:
        """Take the hooks off: the optimiser is an ordinary one again."""
        for handle in (*self._on_steps, *self._on_gradients):
            handle.remove()

    def _attach(self) -> None:
        """Anew for each step: after hooks of the user's own, which are part of the step."""
        for handle in self._on_steps:
            handle.remove()
        self._on_steps = [part.register_step_pre_hook(self._before) for part in self._parts]
        self._on_steps += [part.register_step_post_hook(self._after) for part in self._parts]

    @property
    def pending(self) -> bool:
        """Whether gradients were handed over that some optimiser has not used."""
        return bool(self._waiting)

    def _before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(argument is not None and argument is not optimizer for argument in (*args, *kwargs.values())):
            raise InputError(
                "step: got a closure, or another argument; what it computes again is not the noisy gradient.",
                remedy="call step() without arguments, and leave a GradScaler out: under torch.autocast in bfloat16 none is needed.",
            )
        self._refuse_strangers()
        if optimizer not in self._waiting:
            # The step of a subclass calls that of its class, and means the same gradients; that of half a batch moves nothing.
            if not (self._moving or self.partial):
                raise self._nothing_handed()
            return
        self._held.refuse_changes(f"before step {self.step}")
        optimised = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if gone := [name for name in self._handed if self._named[name].grad is None and id(self._named[name]) in optimised]:
            raise InputError(
                f"step {self.step}: the noisy gradient of {gone[0]} is gone.",
                source="zero_grad() between engine.backward and optimizer.step",
                remedy="call optimizer.zero_grad() after optimizer.step().",
            )
        self._waiting.remove(optimizer)
        self._moving = True

    def _after(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._held.keep()
        if self._moving and not self._waiting:
            self._taken()
        self._moving = False

    def _refuse_strangers(self) -> None:
        """Refuse gradients that are not the tensors that were handed over."""
        for name, parameter in self._named.items():
            if parameter.grad is not None and (name not in self._handed or self._handed[name]() is not parameter.grad):
                raise _foreign(name)

    def _nothing_handed(self) -> InputError:
        if self.step < self._total:
            return InputError(f"step: there is no private gradient for step {self.step + 1}.", remedy=_INSTEAD)
        return InputError(
            f"step: all {self.step} steps of the run are used up; another would cost more privacy than was planned.",
            source="run.steps or run.passes",
            remedy="plan a longer run; after engine.close() the optimiser is an ordinary one again.",
        )


def refuse_another_engine(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimiser whose steps another engine guards."""
    parts = getattr(optimizer, "parts", (optimizer,))
    hooks = [hook for part in parts for hook in getattr(part, "_optimizer_step_pre_hooks", {}).values()]
    if any(isinstance(getattr(hook, "__self__", None), StepGuard) for hook in hooks):
        raise InputError(
            "optimizer: it belongs to another engine, which takes no gradients but its own.",
            source="an earlier PrivacyEngine with the same optimiser, as in a notebook's cell that was run again",
            remedy="call close() on that engine first, or make model and optimiser anew; training the same model on adds to its epsilon.",
        )


def _foreign(name: str) -> InputError:
    return InputError(
        f"{name}: its .grad is not the noisy gradient that engine.backward wrote.",
        source="loss.backward() beside engine.backward(batch), or a .grad that was written",
        remedy=_INSTEAD,
    )
