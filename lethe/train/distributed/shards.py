r"""Parameters that `fully_shard` (FSDP2) divided among the processes: parameters, gradients and optimiser states in shards.

A record's norm needs no shard of another process: each process has its own records, and computes them with whole layers. So a step is

1. all processes meet, and the layers are gathered whole: an ordinary model, without FSDP's hooks, in the policy's precision;
2. each process computes the clipped sum $\sum_i v_i$ of its records, in as many micro-batches and checks as it likes: nothing is exchanged;
3. the sums are reduce-scattered, after each micro-batch and, the layers being let go, after the last one: process r gets the sum over all
   processes of its own shard, and no more;
4. each process adds noise of its own to its shard. Disjoint shards with independent noise of one standard deviation make one Gaussian
   over all parameters. What pads an uneven shard is no parameter: it gets no noise, and nothing is read from it;
5. the optimiser steps on shards.

FSDP's own reduction of gradients never runs. In steps 1 to 3 a process needs room for the whole parameters, and for the sums of one
micro-batch; all that is kept from step to step (parameters, what they are compared with, noisy gradients, optimiser states) is in shards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lethe.errors import InputError
from lethe.train.core.tensor_fingerprint import fingerprint
from lethe.train.core.tensors import is_shard, local
from lethe.train.distributed.collectives import reached, scatter_sums
from lethe.train.distributed.placement import Given, Placement, Result
from lethe.train.distributed.workers import Workers

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
_PACKAGE, _STATE = "torch.distributed.", "__composable_api_state_key"
_Place = tuple[str, int]  # the name of a module's hooks, and the number of one


class Shards(Placement):
    """See the head of this file.

    Args:
        model: on whose modules fully_shard was called.
        named: its trained parameters, sharded or (outside of those modules) whole in every process.
        workers: the processes that train them together.
    Raises:
        InputError: shards of a kind that is not known.
    """

    def __init__(self, model: nn.Module, named: Mapping[str, nn.Parameter], workers: Workers) -> None:
        super().__init__(named, workers)
        self._model = model
        self._modules: list[Any] = [module for module in model.modules() if _fsdp_class(module) is not None]
        self._dimensions: dict[str, int] = {}
        for name, parameter in model.named_parameters():
            if is_shard(parameter):
                found = _dimension(name, parameter, workers)
                if name in named:
                    self._dimensions[name] = found
        self._casts = {module: _casts(module) for module in self._modules}
        self._stand_ins: list[tuple[nn.Module, dict[_Place, Any], dict[_Place, Any]]] = []
        self._classes = [(module, type(module), _class_before(module)) for module in self._modules]
        own = ((module, {name: value for name, value in vars(module).items() if name.startswith(_STATE)}) for module in model.modules())
        self._states = [(module, states) for module, states in own if states]
        self._computing: dict[str, nn.Parameter] = {}
        self._names: dict[nn.Parameter, str] = {}
        self._before: dict[str, Any] = {}
        self._gathered = False
        self._collected: dict[str, Tensor] = {}  # of the step's micro-batches so far: own parts, and whole what lies whole

    @property
    def computing(self) -> Collection[nn.Parameter]:
        """The whole parameters, of the last time when the model was gathered."""
        return self._computing.values()

    @property
    def whole(self) -> list[nn.Parameter]:
        """See Placement."""
        return [parameter for name, parameter in self.named.items() if name not in self._dimensions]

    @property
    def sharded(self) -> bool:
        """See Placement."""
        return True

    def parts(self) -> list[bool]:
        """See Placement."""
        return [name in self._dimensions for name in self.named]

    def meet(self) -> None:
        """See Placement."""
        self._workers.meet_to_gather()

    def read(self, before: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """See Placement."""
        with self._workers.watched():
            result = before(*args, **kwargs)
            self.meet()
            return result

    def gather(self) -> None:
        """See Placement."""
        if self._gathered:
            return
        self._workers.meet_to_gather()
        with reached():
            self._reshard()
            for module in self._modules:
                module.unshard()
        self._gathered = True
        if not self._stand_ins:  # FSDP puts some of its hooks on with the first gathering
            self._stand_ins = [(module, *_stand_ins(module, self._casts.get(module, {}))) for module in self._model.modules()]
        self._put_in(plain=True)
        found = dict(self._model.named_parameters())
        self._computing = {name: found[name] for name in self.named}
        self._names = {parameter: name for name, parameter in self._computing.items()}
        self._before = {name: fingerprint(parameter) for name, parameter in self._computing.items()}

    def let_go(self, *, refuse: bool = True) -> None:
        """See Placement."""
        if not self._gathered:
            return
        written = [name for name, parameter in self._computing.items() if parameter.grad is not None]
        for name in written:
            self._computing[name].grad = None
        self._put_in(plain=False)
        self._reshard()
        self._gathered = False
        if written and refuse:
            raise InputError(
                f"{written[0]}: a gradient was written to .grad while the model was whole; it was neither clipped nor noised, and is gone.",
                source="loss.backward() beside engine.backward(batch)",
                remedy="call engine.backward(batch) once for every micro-batch, and loss.backward() never.",
            )

    def moved(self) -> list[str] | None:
        """See Placement."""
        if not self._gathered:
            self._reshard()
            return None
        found = dict(self._model.named_parameters())
        same = [name for name, one in self._computing.items() if found.get(name) is one and fingerprint(one) == self._before[name]]
        return [name for name in self.named if name not in same]

    def add_up(self, sums: Mapping[nn.Parameter, Tensor]) -> dict[nn.Parameter, Tensor]:
        """See Placement."""
        named = self._joined(sums)
        self._workers.add_up([named[name] for name in self.named if name not in self._dimensions], parameters=self.whole)
        self._scatter(named)
        self._collected = {}
        for name in self._dimensions:
            named[name] = named[name].view(local(self.named[name]).shape)
        return {parameter: named[name] for name, parameter in self.named.items()}

    def collect(self, take: Callable[[], Mapping[nn.Parameter, Tensor]]) -> None:
        """See Placement: else what was summed so far and what is added would both be there, whole."""
        named = self._joined(take())
        self._workers.meet_to_collect()
        self._scatter(named)
        self._collected = named

    def _joined(self, sums: Mapping[nn.Parameter, Tensor]) -> dict[str, Tensor]:
        """The sums of a micro-batch by name; of what lies whole, with those of the ones before."""
        self.refuse_others(sums)
        named = {self._names[parameter]: total for parameter, total in sums.items()}
        for name, total in named.items():
            if name in self._collected and name not in self._dimensions:
                total.add_(self._collected[name])
        return named

    def _scatter(self, named: dict[str, Tensor]) -> None:
        """Put this process's own part, flat, in the place of each shard's sum, with that of the micro-batches before."""
        rank, world_size = self._workers.rank, self._workers.world_size
        whole = (named.pop(name) for name in self._dimensions)  # each is let go once it was sent
        told = scatter_sums(whole, list(self._dimensions.values()), rank=rank, world_size=world_size)
        for name, part in zip(self._dimensions, told, strict=True):
            before = self._collected.pop(name, None)
            named[name] = part if before is None else before.add_(part)

    def _reshard(self) -> None:
        """Let go of whole layers; a forward pass of the user's own leaves some, which would be those of before the next step."""
        for module in self._modules:
            module.reshard()

    def _put_in(self, *, plain: bool) -> None:
        for module, before, stand_ins in self._stand_ins:
            for (hooks, key), hook in (stand_ins if plain else before).items():
                if key in vars(module)[hooks]:
                    vars(module)[hooks][key] = hook
        for module, sharding, before in self._classes:
            module.__class__ = before if plain else sharding
        for module, states in self._states:  # what would keep the model from being copied, for the self-check
            for name, state in states.items():
                if plain:
                    vars(module).pop(name, None)
                else:
                    vars(module)[name] = state


def reshard(model: nn.Module) -> None:
    """Let go of layers that are whole after a forward pass of the user's own, whose parameters are not those that the optimiser has.

    Args:
        model: any.
    """
    for module in model.modules():
        if _fsdp_class(module) is not None:
            module.reshard()  # pyright: ignore[reportCallIssue]


def placement_of(model: nn.Module, named: Mapping[str, nn.Parameter], workers: Workers) -> Placement:
    """Where the trained parameters of a model lie.

    Args:
        model: any.
        named: its trained parameters.
        workers: the processes that train it together.
    Raises:
        InputError: shards of a kind that is not known.
    """
    sharded = any(_fsdp_class(module) is not None for module in model.modules())
    if not sharded and not any(is_shard(parameter) for parameter in model.parameters()):
        return Placement(named, workers)
    return Shards(model, named, workers)


def _fsdp_class(module: nn.Module) -> type | None:
    kinds = (kind for kind in type(module).__mro__ if kind.__name__ == "FSDPModule" and kind.__module__.startswith(_PACKAGE))
    return next(kinds, None)


def _class_before(module: nn.Module) -> type:
    kinds = type(module).__mro__
    return next(after for kind, after in pairwise(kinds) if kind is _fsdp_class(module))


def _dimension(name: str, parameter: Any, workers: Workers) -> int:
    """The dimension along which a parameter is divided, in the order of the processes."""
    mesh, placements, remedy = (
        parameter.device_mesh,
        parameter.placements,
        "shard it over one mesh of all processes by fully_shard(module), or give it whole in every process.",
    )
    source = "fully_shard or tensor parallelism"
    if mesh.ndim != 1:
        kind = "x".join(str(size) for size in mesh.shape)
        names = f" ({', '.join(mesh.mesh_dim_names)})" if mesh.mesh_dim_names else ""
        raise InputError(
            f"parameter {name}: on a mesh of {kind} processes{names}: of hybrid shards (HSDP) every group would have to take the same "
            "noise, and with tensor parallelism a record's norm would need the shards of other processes; neither is written.",
            source=source,
            remedy=remedy,
        )
    if mesh.mesh.tolist() != list(range(workers.world_size)):
        raise InputError(
            f"parameter {name}: its mesh is of processes {mesh.mesh.tolist()}; {workers.world_size} train together.",
            source=source,
            remedy=remedy,
        )
    dimension = getattr(placements[0], "dim", None)
    if type(placements[0]).__name__ != "Shard" or dimension is None:
        raise InputError(
            f"parameter {name}: a DTensor placed as {placements[0]}; it needs a shard in every process.", source=source, remedy=remedy
        )
    if local(parameter).device.type != mesh.device_type:
        raise InputError(
            f"parameter {name}: its shard is on {local(parameter).device}, and it is computed with on {mesh.device_type}.",
            source="CPUOffloadPolicy, given to fully_shard",
            remedy="leave the policy out.",
        )
    return int(dimension)


def _stand_ins(module: nn.Module, casts: Mapping[str, Any]) -> tuple[dict[_Place, Any], dict[_Place, Any]]:
    """FSDP's hooks on a module, and what stands in for them while it is whole: the policy's casts, else nothing."""
    before: dict[_Place, Any] = {}
    for hooks in _HOOKS:
        for key, hook in vars(module)[hooks].items():
            if str(getattr(getattr(hook, "hook", hook), "__module__", "")).startswith(_PACKAGE + "fsdp"):
                before[hooks, key] = hook
    return before, {place: casts.get(place[0], _nothing) for place in before}


def _casts(module: Any) -> dict[str, Any]:
    """The hooks that cast a module's inputs and outputs as its mixed-precision policy says."""
    policy = getattr(module._get_fsdp_state(), "_mp_policy", None)
    if policy is None:
        raise InputError(
            f"model: fully_shard of PyTorch {torch.__version__} does not tell its policy of precision.",
            remedy="use another version of PyTorch, or give the model whole in every process.",
        )
    found: dict[str, Any] = {}
    if policy.cast_forward_inputs and policy.param_dtype is not None:
        found["_forward_pre_hooks"] = partial(_cast_inputs, policy.param_dtype)
    if policy.output_dtype is not None:
        found["_forward_hooks"] = partial(_cast_output, policy.output_dtype)
    return found


def _nothing(*given: Any, **keywords: Any) -> None:
    """Stands in for a hook."""


def _cast_inputs(dtype: torch.dtype, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return tree_map(_cast(dtype), (args, kwargs))


def _cast_output(dtype: torch.dtype, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    return tree_map(_cast(dtype), output)


def _cast(dtype: torch.dtype) -> Callable[[Any], Any]:
    return lambda entry: entry.to(dtype) if isinstance(entry, Tensor) and entry.is_floating_point() else entry
