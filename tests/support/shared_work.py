"""What processes do in the tests of wrapped and sharded models; each function is called with the rank first."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from doors import arguments
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, fit_network, make_data, make_network_run
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lethe.certificates.weights import raw_state, tensors_digest
from lethe.run.run import Run
from lethe.train import Checkpoints, PrivacyEngine, TrainOptions, fit
from lethe.train.checkpoints.journal import Journal
from lethe.train.core.tensors import local, whole
from lethe.train.network.noise.gaussian import NetworkNoise

LOUD = 1e9  # what the features of loud records are multiplied by


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Of 5, 4 and 3 rows: uneven shards and empty ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(COLUMNS, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, CLASSES)).to(dtype)


def sharded(model: nn.Sequential, how: str = "all") -> nn.Module:
    """The model in shards; alone in its process, as it is."""
    if how == "frozen":
        model[0].weight.requires_grad_(False)
    if how == "whole" or not dist.is_initialized():
        return model
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if how == "some":  # the others stay whole
        fully_shard(model[3], mesh=mesh)
        return model
    if how == "columns":
        fully_shard(model[0], mesh=mesh, shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1) if parameter.dim() == 2 else None)
    elif how == "bf16":
        fully_shard(model[0], mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        return fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32))  # pyright: ignore
    else:
        fully_shard([model[0], model[2]], mesh=mesh)
    return fully_shard(model, mesh=mesh)  # pyright: ignore[reportReturnType]


def everything(model: nn.Module) -> Tensor:
    return torch.cat([whole(parameter.detach()).reshape(-1) for parameter in model.parameters()])


Told = tuple[Tensor, Run, str]


def trained(rank: int, how: str, run: Run, make: Any, options: dict[str, Any], dtype: torch.dtype = torch.float64) -> Told:
    """`fit` of the model in shards; `make` is an optimiser's class."""
    model = sharded(network(dtype), how)
    optimizer = None if make is None else make(model.parameters(), lr=0.5)
    fitted = fit_network(run, model, data=make_data(dtype), optimizer=optimizer, **options)
    state = {name: whole(entry) for name, entry in fitted.model.state_dict().items()}
    assert fitted.record.released[0].sha256 == tensors_digest(raw_state(state))
    return everything(model), fitted.run, fitted.checked


def in_a_loop(rank: int, how: str, run: Run, make: Any, options: dict[str, Any], dtype: torch.dtype = torch.float64) -> Told:
    """The same in a loop of one's own, with the wrapper called where there is one."""
    model: Any = network(dtype)
    model = DistributedDataParallel(model) if how == "ddp" and dist.is_initialized() else sharded(model, how) if how != "ddp" else model
    options = dict(options)
    grouped = {name: options.pop(name) for name in ("users", "records_per_user") if name in options}
    own = make(model.parameters(), lr=0.5)
    engine = PrivacyEngine(
        model, own, lambda batch: CROSS_ENTROPY(model(batch[0]), batch[1]), make_data(dtype), run, **arguments({**options, **grouped})
    )
    given, optimizer, loader = model, own, engine.batches()
    assert given is model
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
        if engine.steps == 2:
            with torch.no_grad():
                model(batch[0])  # leaves layers whole, if the model is in shards
    record = engine.record()
    assert "forward" not in vars(model)
    state = {name.removeprefix("module."): whole(entry) for name, entry in model.state_dict().items()}
    assert record.released[0].sha256 == tensors_digest(raw_state(state))
    engine.close()
    with torch.no_grad():
        model(make_data(dtype)[0])  # in the user's own way, as before
    return everything(model), record.run, "checked"


class Largest(TorchDispatchMode):
    """The largest number in any tensor that goes through a collective operation."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        name = func.__name__.split(".")[0]
        if func.namespace == "c10d" or (func.namespace == "_c10d_functional" and ("reduce" in name or "gather" in name)):
            second = func.namespace == "c10d" and ("scatter" in name or "gather" in name)
            own = args[1] if second else args[0]  # before it comes empty memory for the result, whatever is in it
            sent = [leaf for leaf in tree_leaves(own) if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel()]
            self.sizes[name] = max([self.sizes.get(name, 0.0), *(float(leaf.double().abs().max()) for leaf in sent)])
        return func(*args, **(kwargs or {}))


def loudest(rank: int, how: str, private: bool) -> tuple[dict[str, float], int]:
    """The largest number sent by each operation in steps in which gradients of some records are huge; how often the reducer ran."""
    data = make_data()
    data[0][3:11] *= LOUD  # of a single one the loss might be 0
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(COLUMNS, 5), nn.Linear(5, CLASSES)).double()
    reduced: list[int] = []
    if how == "ddp":
        model = DistributedDataParallel(model)

        def noted(state: Any, bucket: Any) -> Any:
            reduced.append(bucket.index())
            future: torch.futures.Future[Tensor] = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        model.register_comm_hook(None, noted)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
    with Largest() as largest:
        if private:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            fit_network(make_network_run("full", steps=2), model, data=data, optimizer=optimizer)
        else:
            CROSS_ENTROPY(model(data[0]), data[1]).sum().backward()
    return largest.sizes, len(reduced)


def of_noise_alone(rank: int, how: str, run: Run, make: Any, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Layers of zeros whose gradients vanish end at the sums of the noises: the first, in shards or whole, the second, and all shards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(900, 251, bias=False), nn.Linear(251, 7, bias=False)).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    if how == "some":
        fully_shard(model[0], mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = None if make is None else make(model.parameters(), lr=0.5)
    data = (torch.zeros(23, 900, dtype=torch.float64), torch.zeros(23, dtype=torch.long))
    options = {"optimizer": optimizer, "isolation": "declared", **options}
    fit(model, lambda outputs, targets: outputs.sum(1) * 0.0, data, run, **arguments(options))
    shard, second = (local(layer.weight.detach()) for layer in model)
    return shard, second, whole(model[0].weight.detach())


def wrong(rank: int, what: str) -> Any:
    """Something that is to be refused."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor import distribute_module

    mesh, model = init_device_mesh("cpu", (2,)), network()
    makers: dict[str, Callable[[], Any]] = {
        "hybrid": lambda: fully_shard(model, mesh=init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))),
        "tensor parallel": lambda: distribute_module(model, mesh),
        "one of two": lambda: fully_shard(model, mesh=DeviceMesh("cpu", [rank])),
        "first version": lambda: FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True),
        "inside": lambda: nn.Sequential(DistributedDataParallel(model), nn.Tanh()),
        "subgroup": lambda: DistributedDataParallel(model, process_group=[dist.new_group([0]), dist.new_group([1])][rank]),
    }
    changes: dict[str, dict[str, Any]] = {
        "policy": {"noise_multiplier": None, "noise_budget": 2.0},
        "regulariser": {"regulariser": {"kind": "ridge", "strength": 0.1}},
        "last": {"release": "last"},
    }
    options: dict[str, dict[str, Any]] = {
        "policy": {"noise_policy": lambda observed: 4.0},
        "average kept": {"ema": 0.9, "checkpoints": "never made"},
        "same noise": {"noise_generator": torch.Generator().manual_seed(3)},
    }
    made = makers.get(what, lambda: fully_shard(model, mesh=mesh))()
    run = make_network_run("shuffled", **{"noise_multiplier": 1.0, **changes.get(what, {})})
    return fit_network(run, made, **options.get(what, {}))


def written(rank: int, what: str, folder: str) -> None:
    """Somebody writes into the parameters, or their gradients, while the model is whole; or into a shard between two steps."""
    model, done, run = sharded(network(), what), [0], make_network_run("shuffled", noise_multiplier=1.0)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    if what == "frozen":
        optimizer.register_step_post_hook(lambda *_: local(next(model.parameters())).add_(rank))

    def progress(step: int, steps: int) -> None:
        done[0] = step
        if what == "shard" and step == 3 and rank == 1:
            with torch.no_grad():
                local(next(model.parameters())).view(-1)[0] += 1.0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if what == "gathered" and done[0] >= 5:  # through .data, which no version tells of; the eighth batch is looked at
            next(model.parameters()).data.view(-1)[0] += 1e-9
        if what == "in place" and done[0] == 4 and rank == 1:  # a batch that is not looked at
            with torch.no_grad():
                next(model.parameters()).view(-1)[0] += 1.0
        if what == "gradient":
            next(model.parameters()).grad = torch.ones_like(next(model.parameters()))
        return CROSS_ENTROPY(outputs, targets)

    fit(
        model,
        loss,
        make_data(),
        run,
        optimizer=optimizer,
        options=TrainOptions(progress=progress, checkpoints=Checkpoints(folder=folder, every=2)),
    )


def kept(rank: int, run: Run, folder: str, stop: int | None, make: Any = torch.optim.Adam, how: str = "all") -> Any:
    """`fit`, in shards or whole, with checkpoints, ended by an error after step `stop`."""

    def progress(step: int, steps: int) -> None:
        if step == stop:
            raise KeyError

    model = sharded(network(), how)
    options = {
        "checkpoints": Checkpoints(folder=folder, every=2),
        "progress": progress,
        "batch_generator": torch.Generator().manual_seed(3),
    }
    optimizer = None if make is None else make(model.parameters(), lr=0.1)
    fitted = fit_network(run, model, optimizer=optimizer, **options)
    return everything(model), fitted.run


def root_dies(rank: int, run: Run, folder: str, at: int, written: bool) -> None:
    """`fit` in shards, in which process 0 dies at a step right before or after it has written it down; noise that is drawn is noted."""
    drawn, release = NetworkNoise.add, Journal.release

    def add(self: NetworkNoise, tensors: Any, noise_std: float, **correlating: Any) -> None:
        if tensors:
            with open(f"{folder}-drawn{rank}", "a") as file:
                file.write("drawn\n")
        drawn(self, tensors, noise_std, **correlating)

    def dying(self: Journal, step: int) -> None:
        if step != at:
            return release(self, step)
        if written:
            release(self, step)
        time.sleep(0.5)  # whoever does not wait draws now
        os._exit(1)

    NetworkNoise.add, Journal.release = add, dying  # type: ignore[method-assign]
    try:
        fit_network(run, sharded(network()), checkpoints=folder)
    finally:
        NetworkNoise.add, Journal.release = drawn, release  # type: ignore[method-assign]
