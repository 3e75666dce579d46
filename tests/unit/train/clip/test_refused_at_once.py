"""What is refused without a batch, what is no batch, and modes of PyTorch around a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hostile_models import Between, batches, rows, squares, trained
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from lethe.errors import InputError
from lethe.train.clip.clipper import Clipper


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "normalises a record by the others"),
        (lambda: nn.Sequential(nn.InstanceNorm1d(5, track_running_stats=True), nn.Linear(4, 3)), "without any noise"),
        (lambda: nn.Sequential(nn.Linear(4, 5), nn.Embedding(5, 5, max_norm=0.1).requires_grad_(False)), "without any noise"),
        (lambda: nn.Embedding(5, 5, scale_grad_by_freq=True), "divided by how often"),
        (lambda: nn.LazyLinear(3), "no shape and no values yet"),
        (lambda: nn.Linear(4, 3).to(torch.complex64), "real floating-point"),
        (lambda: nn.Linear(4, 3).requires_grad_(False), "nothing to train"),
        (lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), "power iteration"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning", "ignore:Complex modules:UserWarning")
def test_what_can_be_seen_without_a_batch_is_refused_at_once(model: Callable[[], nn.Module], said: str) -> None:
    made = model()
    with pytest.raises(InputError, match=said):
        Clipper(made, made)
    with pytest.raises(InputError, match=said):
        Clipper(made, made, isolation="enforced")


def test_layers_that_came_to_mix_later_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double().eval()
    clipper = trained(model, batches(0, 1))
    model.train()
    with pytest.raises(InputError, match="normalises a record by the others"):
        clipper.add(rows(1))


@pytest.mark.parametrize(
    "losses",
    [lambda model, batch: squares(model(batch)).mean(), lambda model, batch: model(batch), lambda model, batch: [squares(model(batch))]],
)
def test_other_than_one_loss_a_record_is_refused(losses: Callable[..., Any]) -> None:
    model = Between()
    with pytest.raises(InputError, match="one loss a record"):
        Clipper(model, lambda batch: losses(model, batch)).add(rows(0))


@pytest.mark.parametrize("batch", [{}, {"one": torch.zeros(3, 2), "other": torch.zeros(2)}, torch.zeros(())])
def test_what_is_no_batch_is_refused(batch: Any) -> None:
    model = Between()
    with pytest.raises(InputError, match="records along their first dimension"):
        Clipper(model, lambda rows: squares(model(rows))).add(batch)


def test_arguments_are_checked() -> None:
    model = Between()
    for arguments, said in (
        ((model, None), "losses: got NoneType"),
        ((None, model), "model: got NoneType"),
        ((model, model, 0.0), "clip_norm"),
        ((model, model, []), "clip_norm"),
    ):
        with pytest.raises(InputError, match=said):
            Clipper(*arguments)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="method: got 'none'"):
        Clipper(model, model, method="none")
    with pytest.raises(InputError, match="isolation: got 'none'"):
        Clipper(model, model, isolation="none")
    for memory in (-1, 0.5, "8 MiB"):
        with pytest.raises(InputError, match="gradient_memory"):
            Clipper(model, model, gradient_memory=memory)  # pyright: ignore[reportArgumentType]


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


MODES: dict[str, Callable[[], Any]] = {
    "flops": lambda: FlopCounterMode(display=False),
    "profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    "anomalies": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "dispatch": Counting,
    "one thread": lambda: torch.autograd.set_multithreading_enabled(False),
}


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["checked", "enforced"])
@pytest.mark.parametrize("name", MODES)
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_modes_of_torch_around_a_step_change_nothing(name: str, isolation: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.1), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 2)).double().eval()
    sums: list[list[Tensor]] = []
    for mode in (MODES[name], None):
        clipper = Clipper(model, lambda batch: squares(model(batch)), isolation=isolation)
        if mode is None:
            clipper.add(rows(0))
        else:
            with mode():
                clipper.add(rows(0))
        sums.append(list(clipper.take().values()))
    assert all(torch.equal(one, other) for one, other in zip(*sums, strict=True))


def test_parameters_of_other_modules_are_refused_and_get_no_gradient() -> None:
    body, head = nn.Linear(4, 3), nn.Linear(3, 1)
    clipper = Clipper(body, lambda rows: head(body(rows))[:, 0])
    with pytest.raises(InputError, match=r"parameter of shape \(1, 3\) that requires grad and is not the model's"):
        clipper.add(torch.randn(5, 4))
    assert head.weight.grad is None
    head.requires_grad_(False)
    clipper.add(torch.randn(5, 4))
