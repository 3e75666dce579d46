"""The training state in a checkpoint: saved, validated against the training that continues, and restored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.run.precision import Precision, parse_precision
from lethe.train.checkpoints.held_parameters import HeldParameters
from lethe.train.checkpoints.moved_state import MovedState
from lethe.train.clip import METHODS, Clipper
from lethe.train.core.recorder import Recorder
from lethe.train.core.tensors import contents, is_shard
from lethe.train.data import BatchStream
from lethe.train.distributed.placement import Placement

AGAIN = "give what training began with, or begin another run in another folder."
"""What to do where the parts of a training are others than those of its checkpoint."""
PARTS = {"trained", "untrained", "clipping", "optimizer", "also", "stream", "recorder", "random", "precision"}
"""The names of what `taken_down` returns, but for "noise" and "moved"."""


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


class Recursion(Protocol):
    """What takes the steps; its precision follows from the start, which a training that goes on has no more."""

    precision: Precision | None

    def go_on(self, precision: Precision | None) -> None:
        """Take that of the checkpoint, for the model as it is now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """The parts of a training that are saved, and restored when it is resumed.

    Args:
        named: the trained parameters, or the iterate that is kept beside them.
        clipper: of the model.
        stream: of the batches.
        recorder: of the steps.
        held: the trained parameters, as the last step left them: others are not saved.
        untouched: what else the model has, of which is saved what the optimiser's steps moved.
        noise: correlated over steps; None: independent, of which nothing is saved.
        shard_noise: of this process's shards, correlated; None: it is independent, or there are none.
        optimizer: None: the plain recursion.
        recursion: of `fit`; None: of a loop of one's own.
    """

    named: Mapping[str, Tensor]
    clipper: Clipper
    stream: BatchStream
    recorder: Recorder
    held: HeldParameters
    untouched: MovedState
    noise: KeptNoise | None = None
    shard_noise: KeptNoise | None = None
    optimizer: torch.optim.Optimizer | None = None
    recursion: Recursion | None = None

    @property
    def placement(self) -> Placement:
        """Of the trained parameters; what lies in shards is kept by `sharded_state.py`."""
        return self.held.placement


def taken_down(training: Training, also: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a training between two steps, as tensors and plain data; no generator of noise is in it.

    Of correlated noise there is what later steps take back, under "noise".

    Raises:
        InputError: a step is only half done.
        HypothesisError: something else than a step moved the parameters; a training that goes on from there would not know of it.
    """
    training.held.refuse_changes("before they were saved")
    noise = {} if training.noise is None else {"noise": training.noise.state_dict()}
    moved = training.untouched.moved()
    state = noise | {
        "trained": {name: parameter.detach().cpu().clone() for name, parameter in _whole(training).items()},
        "untrained": _untrained(training.clipper.model, moved),
        "clipping": _clipping(training.clipper),
        "optimizer": _described(training) | {"state": None if training.optimizer is None else whole_part(training.optimizer.state_dict())},
        "also": {name: part.state_dict() for name, part in also.items()},
        "stream": training.stream.state_dict(),
        "recorder": training.recorder.state_dict(),
        "random": _random_state(_device(training)),
        "precision": _precision(training),
    }
    return state | ({"moved": {name: tensor.detach().cpu().clone() for name, tensor in moved.items()}} if moved else {})


def refuse_others(found: Mapping[str, Any], training: Training, also: Mapping[str, Any]) -> None:
    """Refuse a training whose model, clipping or optimiser is not that of the checkpoint.

    The stream checks its own state.

    Args:
        found: the state in the checkpoint.
        training: what is to be continued.
        also: further states that the caller keeps, by name.
    Raises:
        InputError: what differs.
    """
    there = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in found["trained"].items()}
    here = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in _whole(training).items()}
    if there != here:
        name = next(name for name in [*here, *there] if here.get(name) != there.get(name))
        raise InputError(
            f"model: its trained parameters are not those of the checkpoint: {name} is {there.get(name, 'not among them')} there, "
            f"and {here.get(name, 'not trained')} here.",
            source="checkpoints.folder",
            remedy=AGAIN,
        )
    if (training.noise is not None or training.shard_noise is not None) and list(there) != list(here):
        raise refused_order("model", here, there)
    if found["untrained"] != _untrained(training.clipper.model, found.get("moved", {})):
        raise InputError(
            "model: its buffers or frozen parameters are not those that training began with.",
            source="checkpoints.folder",
            remedy="load the same frozen weights as before.",
        )
    described = {key: value for key, value in found["optimizer"].items() if key != "state"}
    for what, before, now in (
        ("clipping", found["clipping"], _clipping(training.clipper)),
        ("optimizer", described, _described(training)),
        ("also", sorted(found["also"]), sorted(also)),
    ):
        if before != now:
            raise InputError(f"{what}: the checkpoint has {before}; got {now}.", source="checkpoints.folder", remedy=AGAIN)


@torch.no_grad()
def set_right(
    found: Mapping[str, Any],
    training: Training,
    also: Mapping[str, Any],
    *,
    random: bool,
    shards: Mapping[int, Mapping[str, Tensor]] | None = None,
) -> None:
    """Restore the model, the optimiser and whatever else was saved, after checking that they fit the checkpoint.

    Args:
        found: what `taken_down` returned.
        training: its stream and recorder are loaded already.
        also: by name.
        random: whether PyTorch's global generators, from which dropout draws, go on where they were.
        shards: of the optimiser's state, by the number of the parameter.
    """
    for name, parameter in _whole(training).items():
        parameter.copy_(found["trained"][name])
    training.untouched.restore(found.get("moved", {}))
    if training.recursion is not None:
        training.recursion.go_on(parse_precision(found["precision"]))
    if training.optimizer is not None:
        training.optimizer.load_state_dict(put_together(found["optimizer"]["state"], shards or {}))
    for name, part in also.items():
        part.load_state_dict(found["also"][name])
    if random:
        _set_random_state(found["random"], _device(training))


def refused_order(what: str, here: Iterable[str], there: Iterable[str]) -> InputError:
    """The error where correlated noise would go on with another parameter's: what it keeps has no names, and goes by their order.

    Args:
        what: whose parameters they are.
        here: their names, in order.
        there: those of the checkpoint, the same in another order.
    """
    name, other = next(pair for pair in zip(here, there, strict=True) if pair[0] != pair[1])
    return InputError(
        f"{what}: {name} comes where {other} came in the checkpoint; correlated noise is kept by the order of the parameters.",
        source="checkpoints.folder",
        remedy="make the model as before: its modules in the same order.",
    )


def without_memory(found: dict[str, Any] | None) -> tuple[list[Tensor], dict[str, Any] | None]:
    """What correlated noise takes back, and the rest of the checkpoint."""
    if found is None or "noise" not in found:
        return [], found
    return found["noise"]["memory"], {**found, "noise": {**found["noise"], "memory": []}}


def whole_part(state: Mapping[str, Any]) -> dict[str, Any]:
    """An optimiser's state dict without what lies in shards."""
    kept = {
        number: {key: value for key, value in one.items() if not (isinstance(value, Tensor) and is_shard(value))}
        for number, one in state["state"].items()
    }
    return {**state, "state": kept}


def put_together(state: Mapping[str, Any], shards: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Any]:
    """What `whole_part` left, with the shards that were read."""
    return {**state, "state": {number: {**one, **shards.get(number, {})} for number, one in state["state"].items()}}


def _precision(training: Training) -> dict[str, Any] | None:
    found = None if training.recursion is None else training.recursion.precision
    return None if found is None else found.to_document()


def _whole(training: Training) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in training.named.items() if not is_shard(parameter)}


def _untrained(model: nn.Module, moved: Mapping[str, Tensor]) -> str:
    """A hash of the buffers and the frozen parameters, by name; without the numbers of `moved`, which the optimiser's steps move."""
    digest = hashlib.blake2b(digest_size=32)
    frozen = [(name, parameter) for name, parameter in model.named_parameters() if not parameter.requires_grad]
    for name, tensor in [*frozen, *model.named_buffers()]:
        digest.update(repr((name, tuple(tensor.shape), tensor.dtype)).encode())
        if name in moved and (moved[name].shape, moved[name].dtype) == (tensor.shape, tensor.dtype):
            continue
        digest.update(str(tensor.placements).encode() if is_shard(tensor) else contents(tensor))  # pyright: ignore[reportAttributeAccessIssue]
    return digest.hexdigest()


def _clipping(clipper: Clipper) -> dict[str, Any]:
    method = next(name for name, method in METHODS.items() if method is clipper.method)
    return {"method": method, "groups": [[list(group.parameters), group.clip_norm] for group in clipper.groups]}


def _described(training: Training) -> dict[str, Any]:
    """The optimiser's class, and the parameters of each of its groups by name: its state is kept by their order."""
    if training.optimizer is None:
        return {"kind": None, "groups": []}
    names = {id(parameter): name for name, parameter in training.clipper.model.named_parameters()}
    kind = type(training.optimizer)
    groups: Sequence[Mapping[str, Any]] = training.optimizer.param_groups
    return {
        "kind": f"{kind.__module__}.{kind.__qualname__}",
        "groups": [[names.get(id(parameter), "") for parameter in group["params"]] for group in groups],
    }


def _device(training: Training) -> torch.device:
    return next(iter(training.named.values())).device


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """Of PyTorch's global generators, from which dropout draws."""
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def _set_random_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
