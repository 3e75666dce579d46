r"""The shards of a training in a checkpoint, written by all processes together with `torch.distributed.checkpoint`.

They are in a folder of their own beside `checkpoint.pt`, which names it, with a hash of each of its files: so a folder that was half
written when a process was killed is never read, and a damaged file is an error before anything is unpickled. The new folder is on disk
before `checkpoint.pt` points to it, and the old one is removed after. Any number of processes may go on from there; with correlated noise
as many as before: each has kept what later steps take back of the noise of its own shards.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lethe.errors import InputError, LetheError
from lethe.train.checkpoints.journal import to_disk
from lethe.train.checkpoints.training_state import AGAIN, Training, refused_order
from lethe.train.core.tensors import is_shard
from lethe.train.distributed.collectives import reached
from lethe.train.distributed.workers import Workers

_NAME = "shards-"
_PIECE = 2**24


def write_shards(folder: Path, step: int, training: Training, workers: Workers) -> dict[str, Any]:
    """Write the shards of parameters and optimiser states, and the noise of each process; all processes call this together.

    Args:
        folder: of the checkpoints, which all processes see.
        step: after which it is.
        training: what is saved.
        workers: all processes.
    Returns:
        What `checkpoint.pt` is to say of them.
    Raises:
        LetheError: they cannot be written; what was there before is untouched.
        StoppedElsewhere: that was so in another process, or it is gone.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    tensors = _tensors(training)
    with workers.watched():
        # Another name each time: what `checkpoint.pt` points to stays as it is until that points to this.
        place = folder / workers.gathered({"folder": f"{_NAME}{step}-{os.urandom(4).hex()}"})[0]["folder"]
        if workers.root:
            place.mkdir(mode=0o700)
        workers.meet_to_gather()
        with _written(place), reached(), _quiet():
            save(tensors, storage_writer=FileSystemWriter(place, single_file_per_rank=True), no_dist=not workers.several)
            if training.shard_noise is not None:
                _write_noise(_noise_file(place, workers.rank), training)
        workers.meet_to_gather()
        names = sorted(one.name for one in place.iterdir())
        digests = workers.gathered({name: _digest(place / name) for name in names[workers.rank :: workers.world_size]})
        if workers.root:
            to_disk(place)
            to_disk(folder)
    return {
        "folder": place.name,
        "digests": {name: digest for one in digests for name, digest in one.items()},
        "entries": {name: _described(tensor) for name, tensor in tensors.items()},
        "noises": 0 if training.shard_noise is None else workers.world_size,
    }


def drop_others(folder: Path, kept: str) -> None:
    """Remove the folders of shards that no checkpoint names any more."""
    for one in folder.glob(f"{_NAME}*"):
        if one.name != kept:
            shutil.rmtree(one, ignore_errors=True)


def refuse_other_shards(found: Mapping[str, Any], training: Training, folder: Path, workers: Workers) -> None:
    """Refuse shards that are damaged, or of another model; nothing is changed, and nothing unpickled.

    Args:
        found: the checkpoint.
        training: what is to be continued.
        folder: of the checkpoints.
        workers: all processes; each looks at some of the files.
    Raises:
        InputError: what differs.
    """
    if ("shards" in found) != training.placement.sharded:
        there, here = ("in shards", "whole") if "shards" in found else ("whole", "in shards")
        raise InputError(f"model: it was saved {there}, and is {here} now.", source="checkpoints.folder", remedy=AGAIN)
    if not training.placement.sharded:
        return
    said = found["shards"]
    _refuse_other_noise(said, training, workers)
    here = {name: _described(parameter)[:2] for name, parameter in _parameters(training).items()}
    there = {name: tuple(entry)[:2] for name, entry in said["entries"].items() if name.startswith("trained.")}
    if here != there:
        name = next(name for name in [*here, *there] if here.get(name) != there.get(name))
        raise InputError(
            f"model: {name.removeprefix('trained.')} is {there.get(name, 'not in shards')} in the checkpoint, and "
            f"{here.get(name, 'not in shards')} here.",
            source="checkpoints.folder",
            remedy=AGAIN,
        )
    place = folder / said["folder"]
    for name in sorted(said["digests"])[workers.rank :: workers.world_size]:
        path = place / name
        if not path.is_file() or _digest(path) != said["digests"][name]:
            raise InputError(
                f"{path} is gone, damaged, or cannot be seen by process {workers.rank}.",
                source="checkpoints.folder",
                remedy="give all processes the same folder; put back an intact copy: with the journal as it is that is safe.",
            )


def read_shards(found: Mapping[str, Any], training: Training, folder: Path, workers: Workers) -> dict[int, dict[str, Tensor]]:
    """Read the parameters' shards in place, and those of the optimiser; all processes call this together.

    Args:
        found: the checkpoint, which `refuse_other_shards` let pass in all processes.
        training: what is continued.
        folder: of the checkpoints.
        workers: all processes, of any number.
    Returns:
        Of the optimiser's state, by the number of the parameter, what lies in shards.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    tensors, state = _parameters(training), dict[int, dict[str, Tensor]]()
    mesh = next(iter(tensors.values())).device_mesh  # pyright: ignore[reportAttributeAccessIssue]
    for name, (shape, dtype, dimension) in found["shards"]["entries"].items():
        kind, _, key = name.partition(".")
        if kind == "state":
            number, _, key = key.partition(".")
            tensors[name] = state.setdefault(int(number), {})[key] = _empty(tuple(shape), getattr(torch, dtype), dimension, mesh)
    with reached(), _quiet(), torch.no_grad():
        load(tensors, storage_reader=FileSystemReader(folder / found["shards"]["folder"]), no_dist=not workers.several)
    return state


def read_noise(found: Mapping[str, Any], folder: Path, workers: Workers) -> dict[str, Any]:
    """What this process kept of the noise of its shards.

    Args:
        found: the checkpoint, which `refuse_other_shards` let pass.
        folder: of the checkpoints.
        workers: all processes.
    """
    return torch.load(_noise_file(folder / found["shards"]["folder"], workers.rank), weights_only=True)


def _noise_file(place: Path, rank: int) -> Path:
    return place / f"noise-{rank}.pt"


def _write_noise(path: Path, training: Training) -> None:
    assert training.shard_noise is not None
    with path.open("wb") as file:
        torch.save(training.shard_noise.state_dict(), file)
        file.flush()
        os.fsync(file.fileno())


def _refuse_other_noise(said: Mapping[str, Any], training: Training, workers: Workers) -> None:
    """Refuse shards of correlated noise that are divided in another way than the parameters now are."""
    if training.shard_noise is None:
        return
    if said.get("noises") != workers.world_size:
        raise InputError(
            f"shards: {said.get('noises')} processes have kept the correlated noise of their own shards; {workers.world_size} train now.",
            source="checkpoints.folder",
            remedy="go on with as many processes as before.",
        )
    here = {name: _described(parameter) for name, parameter in _parameters(training).items()}
    there = {name: tuple(entry) for name, entry in said["entries"].items() if name.startswith("trained.")}
    if sorted(here) == sorted(there) and list(here) != list(there):
        raise refused_order("shards", here, there)
    if divided := [name for name in here if name in there and here[name][2] != there[name][2]]:
        raise InputError(
            f"model: {divided[0].removeprefix('trained.')} is divided along another dimension than in the checkpoint, and its correlated "
            "noise with it.",
            source="checkpoints.folder",
            remedy=AGAIN,
        )


def _parameters(training: Training) -> dict[str, Tensor]:
    return {f"trained.{name}": parameter.detach() for name, parameter in training.named.items() if is_shard(parameter)}


def _tensors(training: Training) -> dict[str, Tensor]:
    state = {} if training.optimizer is None else training.optimizer.state_dict()["state"]
    own = {f"state.{number}.{key}": value for number, one in state.items() for key, value in one.items()}
    return _parameters(training) | {name: value for name, value in own.items() if isinstance(value, Tensor) and is_shard(value)}


def _described(tensor: Any) -> tuple[tuple[int, ...], str, int | None]:
    """Shape and type, and the dimension along which it is divided; None: each process has the whole."""
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), getattr(tensor.placements[0], "dim", None)


def _empty(shape: tuple[int, ...], dtype: torch.dtype, dimension: int | None, mesh: Any) -> Tensor:
    from torch.distributed.tensor import Replicate, Shard, zeros

    return zeros(shape, dtype=dtype, device_mesh=mesh, placements=[Replicate() if dimension is None else Shard(dimension)])


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


@contextmanager
def _quiet() -> Generator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells of its own names that are to change
        yield


@contextmanager
def _written(place: Path) -> Generator[None]:
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except (OSError, CheckpointException) as error:
        raise LetheError(
            f"{place} cannot be written: {(str(error).splitlines() or [type(error).__name__])[0]}",
            source="checkpoints.folder",
            remedy="make room or mend the disk, and start again: training goes on from the last checkpoint.",
        ) from error
