"""Stand-ins in the place of a model's trained parameters, wherever in the model they are read."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from torch import Tensor, nn

from lethe.train.model_state.module_attributes import computed_attributes

Place = tuple[dict[str, nn.Parameter | None], str]
"""The parameters of a module, by name, and one of the names."""


class StandIns:
    """While they are in, whoever reads a trained parameter from its module is given its stand-in: whichever module reads it.

    A layer with a rule computes with its parameters themselves, see `real_within`.

    Args:
        model: whose parameters they stand for.
        trained: the parameters.
        alias: a parameter's stand-in.
    """

    def __init__(self, model: nn.Module, trained: Container[nn.Parameter], alias: Callable[[nn.Parameter], Tensor]) -> None:
        self._model, self._trained, self._alias = model, trained, alias
        self._in: dict[int, tuple[Tensor, nn.Parameter]] = {}
        self._made: dict[nn.Parameter, Tensor] = {}
        self._places: list[Place] = []
        self._attributes: list[tuple[dict[str, Any], str, Tensor]] = []

    @property
    def present(self) -> bool:
        """Whether they are in."""
        return bool(self._places)

    def put_in(self) -> None:
        """Put them in, if they are not."""
        if self._places:
            return
        for module in self._model.modules():
            for name, parameter in module._parameters.items():
                if isinstance(parameter, nn.Parameter) and parameter in self._trained:
                    self._places.append((module._parameters, name))
                    self._put(module._parameters, name, parameter)
            # Hooks will write there what they compute of stand-ins.
            if not module._forward_pre_hooks:
                continue
            own = vars(module)
            self._attributes += [(own, name, own[name]) for name in computed_attributes(module) if isinstance(own.get(name), Tensor)]

    def take_out(self) -> None:
        """Put the parameters back; what somebody else put in their place since stays."""
        for holder, name, tensor in self._attributes:
            holder[name] = tensor
        self._attributes.clear()
        for stand_in, parameter in self._in.values():  # what was written on one is the parameter's
            vars(parameter).update({name: value for name, value in vars(stand_in).items() if name != "tape"})
        for parameters, name in self._places:
            self._take(parameters, name)
        self._places.clear()

    def real_within(self, module: nn.Module) -> list[Place]:
        """Put the parameters of a module and of all inside it back; where that was done."""
        if not self._places:
            return []
        return [
            (inner._parameters, name) for inner in module.modules() for name in inner._parameters if self._take(inner._parameters, name)
        ]

    def again(self, places: list[Place]) -> None:
        """Put the stand-ins in again where `real_within` took them out."""
        if self._places:
            for parameters, name in places:
                parameter = parameters.get(name)
                if isinstance(parameter, nn.Parameter):
                    self._put(parameters, name, parameter)

    def _put(self, parameters: dict[str, nn.Parameter | None], name: str, parameter: nn.Parameter) -> None:
        if parameter not in self._made:
            self._made[parameter] = self._alias(parameter)
            vars(self._made[parameter]).update(vars(parameter))
            self._in[id(self._made[parameter])] = (self._made[parameter], parameter)
        parameters[name] = self._made[parameter]  # pyright: ignore[reportArgumentType]

    def _take(self, parameters: dict[str, nn.Parameter | None], name: str) -> bool:
        found = self._in.get(id(parameters.get(name)))
        if found is None:
            return False
        parameters[name] = found[1]
        return True
