"""Training on a GPU: what holds on the CPU holds there. Skipped where there is none; `make test` on a machine with one runs them."""

import subprocess
import sys
from collections.abc import Callable
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import arguments
from interrupted import Spy, make_kept_run, trained
from networks import RECORDS, by_hand, fit_network, flat, make_data, make_network, make_network_run
from repository import ROOT
from torch import Tensor, nn

from lethe.train import Fitted, fit
from lethe.train.clip.clipper import Clipper
from lethe.train.core.generators import fresh_generator
from lethe.train.network.noise.gaussian import NetworkNoise

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]

GPU = torch.device("cuda")
BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
PAIR = {"kind": "banded_inverse", "coefficients": [1.0, -0.9]}


def on_gpu(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.to(GPU) for tensor in tensors)


@pytest.mark.parametrize("where", ["records on the CPU", "records on the GPU"])
@pytest.mark.parametrize("design", ["poisson", "shuffled"])
def test_fit_takes_the_steps_written_out_by_hand(design: str, where: str) -> None:
    run, data = make_network_run(design), make_data()
    expected = by_hand(make_network(), data, run, torch.Generator().manual_seed(3))
    given = data if where == "records on the CPU" else on_gpu(*data)
    fitted = fit_network(run, make_network().to(GPU), data=given, batch_generator=torch.Generator().manual_seed(3), physical_size=4)
    assert flat(fitted.model).is_cuda
    assert float((flat(fitted.model).cpu() - expected).abs().max()) < 1e-12


def noise_of(run: Any, *, dtype: torch.dtype = torch.float32, width: int = 1000, **options: Any) -> Tensor:
    """What one step moved parameters without a gradient by, in units of what the run says it adds to a sum."""
    model = nn.Linear(4, width, bias=False).to(GPU, dtype)
    start = model.weight.detach().clone()
    data = on_gpu(torch.zeros(RECORDS, 4, dtype=dtype), torch.zeros(RECORDS, dtype=torch.long))
    fit(model, lambda outputs, targets: 0.0 * outputs.sum(1), data, run, **arguments({"isolation": "declared", **options}))
    return ((model.weight.detach() - start) * RECORDS / 0.5 / run.clip_norm).double().flatten().cpu()


@pytest.mark.filterwarnings("ignore:private. no record contributed")
@pytest.mark.parametrize("options", [{}, {"secure": True}, {"seed": 1}], ids=str)
def test_the_noise_has_the_run_s_standard_deviation(options: dict[str, Any]) -> None:
    run = make_network_run("full", steps=1, noise_multiplier=2.0)
    found = noise_of(run, width=50_000, **options)
    assert len(found) == 200_000
    assert float(found.std()) == pytest.approx(2.0, rel=6 / sqrt(2 * len(found)))
    assert abs(float(found.mean())) < 6 * 2.0 / sqrt(len(found))


def test_the_gpu_s_normals_have_the_tails_of_a_gaussian() -> None:
    """Beyond 5.77 standard deviations PyTorch's float32 normals on the CPU end; there are 34 in 4e9 numbers beyond 5.8."""
    generator, border, draws = fresh_generator(GPU), 5.8, 60
    expected = draws * 2**26 * erfc(border / sqrt(2))
    tensor, beyond = torch.zeros(2**26, dtype=torch.float64, device=GPU), 0
    noise = NetworkNoise(generator)
    for _ in range(draws):
        tensor.zero_()
        noise.add_to([tensor], 1.0)
        beyond += int((tensor.abs() > border).sum())
    assert abs(beyond - expected) < 7 * sqrt(expected)


@pytest.mark.parametrize("changes", [{}, {"noise": BANDED}, {"noise": PAIR}], ids=str)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_training_that_was_killed_goes_on(changes: dict[str, Any], device: str, tmp_path: Path) -> None:
    """On the device it ran on; every step once, and no noise twice."""
    run, spy = make_kept_run("cyclic", **changes), Spy()
    where = {"model": make_network().to(device)}
    spy.kill(7, before=False)
    assert trained(tmp_path / "kept", run, spy, **where) is None
    fitted = trained(tmp_path / "kept", run, spy, model=make_network().to(device))
    assert isinstance(fitted, Fitted)
    assert spy.steps == sorted(set(spy.steps))
    assert spy.noises[0].device.type == device
    assert not any(torch.equal(one, other) for place, one in enumerate(spy.noises) for other in spy.noises[:place])


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "one position": (lambda: nn.Linear(1, 100_000), (1,)),
    "many positions": (lambda: nn.Linear(50, 40), (50, 50)),
    "convolution": (lambda: nn.Conv1d(20, 20, 3), (20, 250)),
    "normalisation": (lambda: nn.LayerNorm(100_000), (100_000,)),
}


@pytest.mark.parametrize("kind", ["float32", "float32 by tf32", "autocast", "bfloat16"])
@pytest.mark.parametrize("power", [-9, -4, 0, 4, 7])
@pytest.mark.parametrize("name", LAYERS)
def test_no_record_moves_a_sum_by_more_than_the_clip_norm(name: str, power: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of which one is huge and taken back by another; products that the user lets the GPU round to ten bits."""
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    model, given = make().to(GPU, dtype), torch.randn(2, *shape)
    if len(shape) == 2:
        given[0] *= 10.0**power
        given[0, :, 1] = -given[0, :, 0]
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    if kind == "float32 by tf32":
        torch.set_float32_matmul_precision("high")
    try:
        for clip_norm in (1e-6, 1.0):
            losses: Any = lambda batch: (model(batch).float() * 10.0**power).flatten(1).sum(1)  # noqa: E731 - of two lines
            clipper = Clipper(model, losses, clip_norm, method="normalise", isolation="declared")
            with torch.autocast("cuda", torch.bfloat16, enabled=kind == "autocast"):
                clipper.add(given.to(GPU, dtype), counted=torch.tensor([True, False], device=GPU))
            sums = torch.cat([tensor.double().flatten() for tensor in clipper.take().values()])
            assert bool(sums.isfinite().all())
            assert float(sums.norm()) <= clip_norm
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def test_over_nccl_every_layout_takes_the_steps_by_hand() -> None:
    """A process for each GPU there is."""
    script = ROOT / "benchmarks" / "gpu_check.py"
    told = subprocess.run([sys.executable, str(script), "--steps", "5", "--layers", "2"], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    assert "every layout takes the steps written out by hand" in told.stdout
