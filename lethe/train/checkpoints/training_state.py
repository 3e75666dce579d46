"""The training state in a checkpoint: saved, compared with the training that continues, and restored. `Trainer` collects the parts of a
network's training (model, optimiser, batches, recorder, noise) in a `Training`; `Checkpointing` saves and restores it. A checkpoint of
another model or run is refused, since its steps would not be those that the certificate counts.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import METHODS
from lethe.train.clip.module_state import digests
from lethe.train.clip.rules.registry import quantised, settle
from lethe.train.core.recorder import Recorder
from lethe.train.core.tensors import contents, is_shard, local, whole
from lethe.train.data.batches import BatchStream
from lethe.train.distributed.placement import Placement

_VERSION = attrgetter("_version")


class HeldParameters:
    """The trained parameters as the last step left them, and in words what may write to them. What writes through `.data` is seen in
    checked batches alone (`clip/check.py`).
    """

    def __init__(self, named: Mapping[str, nn.Parameter], step: str, placement: Placement) -> None:
        self._named, self._step, self.placement, self._sharded = dict(named), step, placement, placement.sharded
        self._versions = self._now()

    def _now(self) -> list[int]:
        return list(map(_VERSION, map(local, self._named.values()) if self._sharded else self._named.values()))

    def keep(self) -> None:
        """A step was taken: they may be what they are now."""
        self._versions = self._now()

    def refuse_changes(self, when: str) -> None:
        """Refuse parameters that something else wrote to; `when` that is, in words."""
        now, moved = self._now(), self.placement.moved() if self._sharded else []
        if now != self._versions or moved:
            written = [
                name
                for name, version_now, version_before in zip(self._named, now, self._versions, strict=True)
                if version_now != version_before
            ] + moved
            raise HypothesisError(
                f"the trained parameter {written[0]} ({len(written)} in all) was changed by something else than {self._step}, {when}.",
                source="the guarantee covers parameters that only noisy steps move",
                remedy="change parameters in the optimiser's step or after training, not between steps, in forward or in the loss.",
            )


AGAIN = "give what training began with, or begin another run in another folder."
"""What to do where the parts of a training are others than those of its checkpoint."""


class KeptNoise(Protocol):
    """Noise that depends on the noise of earlier steps."""

    def state_dict(self) -> dict[str, Any]:
        """Steps, draws, and the memory: a list of tensors."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; without memory, in a process that draws nothing."""
        ...

    def forget(self, steps: int) -> None:
        """So many steps were released, or may have been, after the checkpoint."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Training:
    """The parts of a training that are saved, and restored when it is resumed; made when it begins.

    What lies in shards is saved whole: process 0 gathers it, tensor by tensor, in its main memory. A step gathers the model in that of each
    GPU anyway. So a checkpoint is one file, and any number of processes may go on from there. Of noise that is independent over the steps
    nothing is saved. `named` may be the iterate that is kept beside the trained parameters.
    """

    named: Mapping[str, Tensor]
    clipper: Clipper
    stream: BatchStream
    recorder: Recorder
    held: HeldParameters
    noise: KeptNoise | None = None
    shard_noise: KeptNoise | None = None
    optimizer: torch.optim.Optimizer | None = None
    also: Mapping[str, Any] = field(default_factory=dict)
    _begun: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._begun = digests(self.clipper.model)

    def state_dict(self, *, root: bool) -> dict[str, Any]:
        """The state between two steps, as tensors and plain data; no generator of noise is in it. All processes call it together.

        Of correlated noise there is what later steps take back, under "noise". What is not trained is saved only if it is other than it
        was when training began, as an average of the weights that a hook of the optimiser moves. In other processes than 0, the root, what
        lies in shards has no contents.
        """
        self.held.refuse_changes("before they were saved")
        settle(quantised(self.clipper.model))
        now = digests(self.clipper.model)
        moved = {name: tensor.detach() for name, tensor in self._untrained().items() if now.get(name) != self._begun.get(name)}
        if shards := [name for name, tensor in moved.items() if is_shard(tensor)]:
            raise InputError(f"checkpoints: {shards[0]} is frozen, in shards and was moved; it is not kept.", remedy="leave it whole.")
        state = None if self.optimizer is None else self.optimizer.state_dict()
        found = {
            "untrained": self._untrained_digest(moved),
            "moved": {name: tensor.cpu().clone() for name, tensor in moved.items()},
            "clipping": self._clipping(),
            "shards": {"trained": self.held.placement.divided, "state": {} if state is None else _divided(state)},
            "also": {name: part.state_dict() for name, part in self.also.items()},
            "stream": self.stream.state_dict(),
            "recorder": self.recorder.state_dict(),
            "noise": None if self.noise is None else self.noise.state_dict(),
            "random": _random_state(self._device),
        }
        self.held.placement.meet()  # what may fail in one process alone is done
        return found | {
            "trained": {name: _saved(parameter, root) for name, parameter in self.named.items()},
            "optimizer": self._described() | {"state": None if state is None else _mapped(state, lambda _, value: _saved(value, root))},
        }

    def refuse_others(self, checkpoint: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another model, clipping or optimiser; the stream and the recorder check their own states."""
        saved_shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in checkpoint["trained"].items()}
        current_shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in self.named.items()}
        if saved_shapes != current_shapes:
            name = next(name for name in [*current_shapes, *saved_shapes] if current_shapes.get(name) != saved_shapes.get(name))
            raise InputError(
                f"model: its trained parameters are not those of the checkpoint: {name} is "
                f"{saved_shapes.get(name, 'not among them')} there, and {current_shapes.get(name, 'not trained')} here.",
                source="checkpoints.folder",
                remedy=AGAIN,
            )
        if (self.noise is not None or self.shard_noise is not None) and list(saved_shapes) != list(current_shapes):
            name, saved_name = next(pair for pair in zip(current_shapes, saved_shapes, strict=True) if pair[0] != pair[1])
            raise InputError(
                f"model: {name} comes where {saved_name} came in the checkpoint; correlated noise is kept by the order of the parameters.",
                source="checkpoints.folder",
                remedy="make the model as before: its modules in the same order.",
            )
        if checkpoint["untrained"] != self._untrained_digest(checkpoint["moved"]):
            raise InputError(
                "model: its buffers or frozen parameters are not those that training began with.",
                source="checkpoints.folder",
                remedy="load the same frozen weights as before.",
            )
        described = {key: value for key, value in checkpoint["optimizer"].items() if key != "state"}
        for what, before, now in (
            ("shards of the model", checkpoint["shards"]["trained"], self.held.placement.divided),
            ("clipping", checkpoint["clipping"], self._clipping()),
            ("optimizer", described, self._described()),
            ("also", sorted(checkpoint["also"]), sorted(self.also)),
        ):
            if before != now:
                raise InputError(f"{what}: the checkpoint has {before}; got {now}.", source="checkpoints.folder", remedy=AGAIN)

    @torch.no_grad()
    def load_state_dict(self, checkpoint: Mapping[str, Any], *, root: bool) -> None:
        """Restore the model, the optimiser and whatever else was saved; stream, recorder and noise are loaded before. All processes call it
        together; process 0, the root, has the contents of the shards, and its global generators go on where they were: for dropout.
        """
        self.held.placement.meet()
        mesh = next((parameter.device_mesh for parameter in self.named.values() if is_shard(parameter)), None)  # pyright: ignore[reportAttributeAccessIssue]

        def placed(value: Any, dimension: int | None) -> Tensor:
            from torch.distributed.tensor import Replicate, Shard, distribute_tensor

            full_tensor = value.to(self._device) if root else torch.empty_like(value, device=self._device)
            return distribute_tensor(full_tensor, mesh, [Replicate() if dimension is None else Shard(dimension)])

        for name, parameter in self.named.items():
            saved, divided = checkpoint["trained"][name], checkpoint["shards"]["trained"]
            parameter.copy_(placed(saved, divided[name]) if name in divided else saved)
        if self.optimizer is not None:
            divided = checkpoint["shards"]["state"]
            state = _mapped(
                checkpoint["optimizer"]["state"], lambda name, value: placed(value, divided[name]) if name in divided else value
            )
            self.optimizer.load_state_dict(state)
        untrained = self._untrained()
        for name, tensor in checkpoint["moved"].items():
            untrained[name].copy_(tensor)
        for name, part in self.also.items():
            part.load_state_dict(checkpoint["also"][name])
        if root:
            torch.set_rng_state(checkpoint["random"]["cpu"])
            if self._device.type == "cuda" and "cuda" in checkpoint["random"]:
                torch.cuda.set_rng_state(checkpoint["random"]["cuda"], self._device)

    @property
    def _device(self) -> torch.device:
        return next(iter(self.named.values())).device

    def _untrained(self) -> dict[str, Tensor]:
        model = self.clipper.model
        # By name: a loop may freeze some of the trained ones for a while.
        return {name: parameter for name, parameter in model.named_parameters() if name not in self.named} | dict(model.named_buffers())

    def _untrained_digest(self, moved: Mapping[str, Tensor]) -> str:
        """A hash of the buffers and the frozen parameters, by name; without the numbers of `moved`, which the optimiser's steps move."""
        digest = hashlib.blake2b(digest_size=32)
        for name, tensor in self._untrained().items():
            digest.update(repr((name, tuple(tensor.shape), tensor.dtype)).encode())
            if name in moved and (moved[name].shape, moved[name].dtype) == (tensor.shape, tensor.dtype):
                continue
            digest.update(str(tensor.placements).encode() if is_shard(tensor) else contents(tensor))  # pyright: ignore[reportAttributeAccessIssue]
        return digest.hexdigest()

    def _clipping(self) -> dict[str, Any]:
        method = next(name for name, method in METHODS.items() if method is self.clipper.method)
        return {"method": method, "groups": [[list(group.parameters), group.clip_norm] for group in self.clipper.groups]}

    def _described(self) -> dict[str, Any]:
        """The optimiser's class, and the parameters of each of its groups by name: its state is kept by their order."""
        if self.optimizer is None:
            return {"kind": None, "groups": []}
        names = {id(parameter): name for name, parameter in self.clipper.model.named_parameters()}
        kind = type(self.optimizer)
        groups = [[names.get(id(parameter), "") for parameter in group["params"]] for group in self.optimizer.param_groups]
        return {"kind": f"{kind.__module__}.{kind.__qualname__}", "groups": groups}


def as_told(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint as process 0 sends it to the others: without the memory of noise and the contents of shards."""
    divided = checkpoint["shards"]
    trained = {name: tensor.to("meta") if name in divided["trained"] else tensor for name, tensor in checkpoint["trained"].items()}
    shared_state = {**checkpoint, "trained": trained, "noise": checkpoint["noise"] and {**checkpoint["noise"], "memory": []}}
    if (state := checkpoint["optimizer"]["state"]) is not None:
        state = _mapped(state, lambda name, value: value.to("meta") if name in divided["state"] else value)
        shared_state["optimizer"] = {**checkpoint["optimizer"], "state": state}
    return shared_state


def _saved(value: Any, root: bool) -> Any:
    """A tensor whole, on the CPU, and nobody else's; in other processes than 0 what lies in shards has no contents."""
    if not isinstance(value, Tensor):
        return value
    gathered = whole(value.detach())
    return gathered.to("meta") if is_shard(value) and not root else gathered.cpu().clone()


def _mapped(state: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """An optimiser's state dict, of whose state (name: NUMBER.KEY, value) is changed."""
    changed = {
        number: {key: change(f"{number}.{key}", value) for key, value in entries.items()} for number, entries in state["state"].items()
    }
    return {**state, "state": changed}


def _divided(state: Mapping[str, Any]) -> dict[str, int | None]:
    """Which tensors of an optimiser's state lie in shards, and along which dimension; None: all processes have the same."""
    named: dict[str, Any] = {f"{number}.{key}": value for number, entries in state["state"].items() for key, value in entries.items()}
    shards: dict[str, Any] = {name: value for name, value in named.items() if isinstance(value, Tensor) and is_shard(value)}
    return {name: getattr(value.placements[0], "dim", None) for name, value in shards.items()}


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of PyTorch's global generators, from which dropout draws."""
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states
