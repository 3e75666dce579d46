r"""Where the trained parameters lie: whole in every process, or in shards that `fully_shard` (FSDP2) made.

`Trainer` calls `gather`, `collect`, `let_go` and `add_up` in each step.
A record's norm needs no shard of another process: each process has its own records, and computes them with whole layers. So a step is

1. all processes wait for each other, and the layers are gathered whole: an ordinary model, without FSDP's hooks, in the policy's precision;
2. each process computes the clipped sum $\sum_i v_i$ of its records, in as many micro-batches and checks as it likes: nothing is exchanged;
3. the sums are reduce-scattered, after each micro-batch and, the layers being let go, after the last one: process r gets the sum over all
   processes of its own shard, and no more;
4. each process adds noise of its own to its shard. Disjoint shards with independent noise of one standard deviation make one Gaussian
   over all parameters. What pads an uneven shard is no parameter: it gets no noise, and nothing is read from it;
5. the optimiser steps on shards.

FSDP's own reduction of gradients never runs. In steps 1 to 3 a process needs room for the whole parameters, and for the sums of one
micro-batch; all that is kept from step to step (parameters, what they are compared with, noisy gradients, optimiser states) is in shards.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lethe.errors import InputError
from lethe.train.core.tensors import dimension, is_shard, local
from lethe.train.distributed.collectives import reached, scatter_sums
from lethe.train.distributed.workers import Doing, Workers

Result = TypeVar("Result")

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
_PACKAGE, _STATE = "torch.distributed.", "__composable_api_state_key"


def changed_parameters() -> InputError:
    """The error where other parameters are trained than when training began."""
    return InputError(
        "the model's trained parameters are not those that training began with.",
        source="requires_grad, or parameters added since",
        remedy="begin with all of them: a loop of one process with PrivacyEngine may then freeze and unfreeze layers between steps.",
    )


class Placement:
    """Exchanges sums and parameters between processes; where nothing lies in shards, `add_up` alone exchanges anything.

    What exchanges something raises a StoppedElsewhere where another process had an error, or is gone; shards of a kind that is not known
    raise an InputError.

    Attributes:
        sharded: whether any parameter of the model lies in shards.
        computing: by name, the parameters that the model computes with: of shards the whole ones, of the last time when it was gathered.
        divided: of each trained parameter in shards, the dimension along which it is divided in the order of the processes.
    """

    def __init__(self, model: nn.Module, named: Mapping[str, nn.Parameter], workers: Workers) -> None:
        self.named, self._workers, self._model = dict(named), workers, model
        self._modules: list[Any] = [module for module in model.modules() if _is_fsdp(module)]
        shards = {name: parameter for name, parameter in model.named_parameters() if is_shard(parameter)}
        divided = {name: _dimension(name, parameter, workers) for name, parameter in shards.items()}
        self.divided = {name: divided[name] for name in named if name in divided}
        self.sharded = bool(self._modules or shards)
        self.computing = dict(named)
        self._casts = {module: _casts(module) for module in self._modules}
        self._stand_ins: list[tuple[nn.Module, dict[tuple[str, int], Any]]] = []  # a module's hooks of FSDP, by kind and number
        self._classes = [(module, type(module), type(module).__mro__[2]) for module in self._modules]  # behind FSDPModule is the user's
        attributes = ((module, *entry) for module in model.modules() for entry in vars(module).items())
        self._states = [(module, name, state) for module, name, state in attributes if name.startswith(_STATE)]
        self._before: dict[str, Any] = {}
        self._gathered = False
        self._collected: dict[str, Tensor] = {}  # of the step's micro-batches so far: own parts, and whole what lies whole

    @property
    def whole(self) -> list[nn.Parameter]:
        """The parameters that every process holds whole."""
        return [parameter for name, parameter in self.named.items() if name not in self.divided]

    @property
    def dimension(self) -> int:
        """How many numbers are trained, over all processes."""
        return dimension(self.named.values())

    def parts(self) -> list[bool]:
        """Of each parameter, whether this process holds a shard of it, with noise of its own."""
        return [name in self.divided for name in self.named]

    def meet(self) -> None:
        """Before whole parameters are read, which all processes do together if they are in shards: wait for all to be about to."""
        if self.sharded:
            self._workers.meet(Doing.GATHERING_THE_MODEL)

    def read(self, before: Callable[..., Result], *args: Any) -> Result:
        """Do what comes before such a reading: an error is sent to the other processes, and at the end all wait for each other."""
        if not self.sharded:
            return before(*args)
        with self._workers.watched():
            result = before(*args)
            self.meet()
            return result

    def gather(self) -> None:
        """Before the records of a step, and before the model's numbers are read: have the model whole here."""
        if not self.sharded or self._gathered:
            return
        self.meet()
        with reached():
            reshard(self._model)
            for module in self._modules:
                module.unshard()
        self._gathered = True
        if not self._stand_ins:  # FSDP puts some of its hooks on with the first gathering
            self._stand_ins = [(module, _hooks(module)) for module in self._model.modules()]
        self._put_in(plain=True)
        parameters = dict(self._model.named_parameters())
        self.computing = {name: parameters[name] for name in self.named}
        self._before = {name: parameter._version for name, parameter in self.computing.items()}

    def let_go(self, *, refuse: bool = True) -> None:
        """After the records of a step: the model is as the user gave it. Nothing is exchanged. Gradients that somebody wrote meanwhile
        are gone, and refused by an InputError.
        """
        if not self._gathered:
            return
        written = [name for name, parameter in self.computing.items() if parameter.grad is not None]
        for name in written:
            self.computing[name].grad = None
        self._put_in(plain=False)
        reshard(self._model)
        self._gathered = False
        if written and refuse:
            raise InputError(
                f"{written[0]}: a gradient was written to .grad while the model was whole; it was neither clipped nor noised, and is gone.",
                source="loss.backward() beside engine.backward(batch)",
                remedy="call engine.backward(batch) once for every micro-batch, and loss.backward() never.",
            )

    def moved(self) -> list[str]:
        """While the model is gathered: the trained parameters that were changed since; elsewhere whole layers are let go of."""
        if not self._gathered:
            reshard(self._model)
            return []
        parameters = dict(self._model.named_parameters())
        same = [
            name
            for name, parameter in self.computing.items()
            if parameters.get(name) is parameter and parameter._version == self._before[name]
        ]
        return [name for name in self.named if name not in same]

    def add_up(self, sums: Mapping[nn.Parameter, Tensor]) -> dict[nn.Parameter, Tensor]:
        """The sums over all processes, where the noise is to be added: by the parameters that the optimiser has. Those of this
        process's records are by the parameters that the model computed with, and may be overwritten.

        Raises:
            InputError: they are not.
            LetheError: the processes' parameters have come apart.
        """
        named = self._joined(sums)
        self._workers.add_up([named[name] for name in self.named if name not in self.divided], parameters=self.whole)
        self._scatter(named)
        self._collected = {}
        return {parameter: named[name] for name, parameter in self.named.items()}

    def collect(self, take: Callable[[], Mapping[nn.Parameter, Tensor]]) -> None:
        """After a micro-batch that more of its step follow: add up already what it takes of shards, which else would be there whole."""
        if self.sharded:
            named = self._joined(take())
            self._workers.meet(Doing.ADDING_UP_A_PART_OF_A_BATCH)
            self._scatter(named)
            self._collected = named

    def _joined(self, sums: Mapping[nn.Parameter, Tensor]) -> dict[str, Tensor]:
        """The sums of a micro-batch by name; of what lies whole, with those of the ones before."""
        if set(sums) != set(self.computing.values()):
            raise changed_parameters()
        named = {name: sums[parameter] for name, parameter in self.computing.items()}
        for name, total in named.items():
            if name in self._collected and name not in self.divided:
                total.add_(self._collected[name])
        return named

    @torch.no_grad()
    def _scatter(self, named: dict[str, Tensor]) -> None:
        """Put this process's own part in the place of each shard's sum, with that of the micro-batches before."""
        whole = (named.pop(name) for name in self.divided)  # each is let go once it was sent
        parts = scatter_sums(whole, list(self.divided.values()), rank=self._workers.rank, world_size=self._workers.world_size)
        for name, part in zip(self.divided, parts, strict=True):
            before = self._collected.pop(name, None)
            named[name] = part if before is None else before.add_(part)

    def _put_in(self, *, plain: bool) -> None:
        """Have the model's modules without FSDP's hooks, classes and states (which would keep the check from copying it), or with them."""
        for module, hooks in self._stand_ins:
            casts = self._casts.get(module, {})
            for (kind, key), hook in hooks.items():
                if key in vars(module)[kind]:
                    vars(module)[kind][key] = casts.get(kind, lambda *args, **keywords: None) if plain else hook
        for module, sharding, before in self._classes:
            module.__class__ = before if plain else sharding
        for module, name, state in self._states:
            if plain:
                vars(module).pop(name, None)
            else:
                vars(module)[name] = state


def reshard(model: nn.Module) -> None:
    """Let go of layers that are whole after a forward pass of the user's own, whose parameters are not those that the optimiser has."""
    for module in model.modules():
        if _is_fsdp(module):
            module.reshard()  # pyright: ignore[reportCallIssue]


def _is_fsdp(module: nn.Module) -> bool:
    """By name: importing the class takes as long as a short training."""
    return any(kind.__name__ == "FSDPModule" and kind.__module__.startswith(_PACKAGE) for kind in type(module).__mro__)


def _dimension(name: str, parameter: Any, workers: Workers) -> int:
    """The dimension along which a parameter is divided, in the order of the processes."""
    mesh, placement = parameter.device_mesh, parameter.placements[0]
    source = "fully_shard or tensor parallelism"
    remedy = "shard it over one mesh of all processes by fully_shard(module), or give it whole in every process."
    if mesh.ndim != 1:
        kind = "x".join(str(size) for size in mesh.shape)
        names = f" ({', '.join(mesh.mesh_dim_names)})" if mesh.mesh_dim_names else ""
        what = (
            f"on a mesh of {kind} processes{names}: of hybrid shards (HSDP) every group would have to take the same noise, and with tensor "
            "parallelism a record's norm would need the shards of other processes; neither is written"
        )
    elif mesh.mesh.tolist() != list(range(workers.world_size)):
        what = f"its mesh is of processes {mesh.mesh.tolist()}; {workers.world_size} train together"
    elif type(placement).__name__ != "Shard":
        what = f"a DTensor placed as {placement}; it needs a shard in every process"
    elif local(parameter).device.type != mesh.device_type:
        what = f"its shard is on {local(parameter).device}, and it is computed with on {mesh.device_type}"
        source, remedy = "CPUOffloadPolicy, given to fully_shard", "leave the policy out."
    else:
        return placement.dim
    raise InputError(f"parameter {name}: {what}.", source=source, remedy=remedy)


def _hooks(module: nn.Module) -> dict[tuple[str, int], Any]:
    """FSDP's hooks on a module; the policy's casts stand in for them while it is whole, or nothing."""
    return {
        (kind, key): hook
        for kind in _HOOKS
        for key, hook in vars(module)[kind].items()
        if str(getattr(getattr(hook, "hook", hook), "__module__", "")).startswith(_PACKAGE + "fsdp")
    }


def _casts(module: Any) -> dict[str, Any]:
    """The hooks that cast a module's inputs and outputs as its mixed-precision policy says."""
    policy, hooks = module._get_fsdp_state()._mp_policy, dict[str, Any]()
    if policy.cast_forward_inputs and policy.param_dtype is not None:
        hooks["_forward_pre_hooks"] = lambda module, args, kwargs: _cast((args, kwargs), policy.param_dtype)
    if policy.output_dtype is not None:
        hooks["_forward_hooks"] = lambda module, args, output: _cast(output, policy.output_dtype)
    return hooks


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    return tree_map(lambda leaf: leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf, tree)
