"""What the parts of training refuse: the call, and what the error says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import make_run as stream_run
from data_cases import numbered, seeded
from networks import make_data, make_network, make_network_run
from torch import Tensor, nn

import lethe
from lethe.errors import LetheError
from lethe.run.losses import LeastSquares, Logistic, Softmax
from lethe.run.regularisers import L1, L2, Ball, Box, GroupL1, NuclearNorm, Simplex
from lethe.train import Checkpoints, Linear, PrivacyEngine, ProximalGroup, fit
from lethe.train.checkpoints.journal import Journal
from lethe.train.clip.clipper import Clipper
from lethe.train.core.generators import seeded_generators
from lethe.train.core.iterates import inward
from lethe.train.core.proximal import NetworkProximal, proximal_step
from lethe.train.data.batches import BatchStream
from lethe.train.data.map_style import MapStyleSource
from lethe.train.data.users import owners_of
from lethe.train.linear.models import prepare_features, prepare_targets
from lethe.train.network.curvature import estimate_curvature
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import SecureNoise, grid_noise_std

NAN, INF = float("nan"), float("inf")
FEATURES, LABELS = make_data()
CPU = torch.device("cpu")
FIXED = {"batches": {"design": "cyclic", "size": 5}}
SOFTMAX = {"kind": "softmax_regression", "feature_norm": 1.5, "evidence": "enforced"}
POINT = torch.ones(3, requires_grad=True)
RIDGE = (L2(strength=1.0),)
NOT_OF_LINEAR_MODELS = (Box(half_width=0.6, dimension=20), GroupL1(strength=0.8), Simplex(total=1.0), NuclearNorm(strength=1.0))
READING = ({"num_worker": 2}, {"num_workers": -1}, {"shuffle": True}, {"prefetch_factor": 2})


def clipper(model: Any, **given: Any) -> None:
    for isolation in ("checked", "enforced"):
        Clipper(model, given.pop("losses", model), **{"isolation": isolation, **given})


def clipped(losses: Callable[[nn.Module, Tensor], Any], batch: Any = FEATURES) -> None:
    model = make_network()
    Clipper(model, lambda rows: losses(model, rows)).add(batch)


def own_proximal(*groups: Any, step_size: Any = 1.0) -> None:
    NetworkProximal({"a": torch.ones(4, 5), "b": torch.zeros(())}, groups).step(step_size)


def checkpoints(**given: Any) -> None:
    Checkpoints(**given)


def features(values: Any) -> None:
    prepare_features(values, feature_norm=2.0, intercept=False, dtype=torch.float64, device=CPU)


def targets(values: Any, classes: int | None = 3) -> None:
    prepare_targets(values, classes=classes, records=3, device=CPU)


def noise(noise_std: Any, *bad: Tensor) -> None:
    """Nothing is added to what could take it."""
    good = torch.zeros(3)
    try:
        NetworkNoise(torch.Generator()).add_to([good, *bad], noise_std)
    finally:
        assert not good.any()


def secure(noise_std: Any, entry: float = 0.0) -> None:
    good = torch.zeros(2)
    try:
        SecureNoise().add_to([good, torch.tensor([entry])], noise_std)
    finally:
        assert not good.any()


def curvature(**changes: Any) -> None:
    estimate_curvature(**{"loss": lambda: (POINT**2).sum(), "parameters": [POINT], "data": "public", **changes})


def a_linear_model(data: Any) -> None:
    fit(Linear(classes=3), None, data, lethe.Run(records=23, steps=1, step_size=1.0, release="all", loss=SOFTMAX, **FIXED))


def stream(run: Any = None, data: Any = None, **changes: Any) -> None:
    BatchStream(stream_run("poisson") if run is None else run, numbered(23) if data is None else data, seeded(0), **changes)


def optimiser(given: Any) -> None:
    PrivacyEngine(make_network(), given, len, make_data(), make_network_run(noise_multiplier=1.0))


def made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(4, 3)


MIXING: list[tuple[Callable[[], nn.Module], str]] = [
    (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "normalises a record by the others"),
    (lambda: nn.Sequential(nn.InstanceNorm1d(5, track_running_stats=True), nn.Linear(4, 3)), "without any noise"),
    (lambda: nn.Sequential(nn.Linear(4, 5), nn.Embedding(5, 5, max_norm=0.1).requires_grad_(False)), "without any noise"),
    (lambda: nn.Embedding(5, 5, scale_grad_by_freq=True), "divided by how often"),
    (lambda: nn.LazyLinear(3), "no shape and no values yet"),
    (lambda: nn.Linear(4, 3).to(torch.complex64), "real floating-point"),
    (lambda: nn.Linear(4, 3).requires_grad_(False), "nothing to train"),
    (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), "power iteration"),
    (lambda: nn.utils.spectral_norm(nn.Linear(4, 3)), "(?s)step of power iteration in each forward pass.*register_step_post_hook"),
    (lambda: made_in_inference_mode(), "parameter weight was made in inference mode"),
    (lambda: nn.Sequential(made_in_inference_mode().requires_grad_(False), nn.Linear(3, 2)), "0.weight was made in inference mode"),
]
TABLES: dict[Callable[..., Any], list[tuple[Any, str]]] = {
    features: [
        (np.zeros(4), "shape"),
        (np.zeros((0, 3)), "shape"),
        ([[1.0, None]], "real numbers"),
        (np.zeros((2, 2), dtype=complex), "real numbers"),
        ([[1.0, 2.0], [3.0]], "cannot be read"),
        *(([[0.0], [bad]], r"features\[1, 0\].*row 1") for bad in (NAN, INF, -INF)),
    ],
    targets: [
        ([0, 1, 3], r"targets\[2\] = 3; it needs a class, a whole number from 0 to 2"),
        ([0, 0.5, 1], r"targets\[1\] = 0.5"),
        ([0, NAN, 1], r"targets\[1\]: got nan"),
        ([0, 1], "shape"),
        (["a", "b", "c"], "real numbers"),
    ],
    owners_of: [
        ([1, "1"], "types int, str"),
        (torch.tensor([1.0, 2.0]), "types float"),
        (["a", None], "types str, NoneType"),
        (np.array(["NaT", "2020-01-01"], dtype="datetime64[D]"), "types NoneType, date"),
        (["a", ""], "an empty text, at record 1"),
        (np.array([1, True], dtype=object), "types int, bool"),
        (np.zeros((2, 1), dtype=int), r"ndarray \(2, 1\)"),
        (np.ma.masked_array([1, 2], mask=[False, True]), "MaskedArray"),
        ([], "got none"),
        ("abc", "got 'abc', and no such column"),
    ],
    noise: [(std, "noise_std") for std in (-1.0, NAN, INF, True, "1", None)],
    secure: [(std, "noise_std") for std in (-1.0, NAN, INF, True, 1e-300, 1e300)],
    optimiser: [(None, r"optimizer: got NoneType; it needs a torch\.optim\.Optimizer")],
    a_linear_model: [(data, r"needs the pair \(features, targets\)") for data in (FEATURES, (FEATURES,), (LABELS,) * 3, {"x": FEATURES})],
    clipped: [
        (lambda model, rows: model(rows).mean(), "one loss a record"),
        (lambda model, rows: model(rows), "one loss a record"),
        (lambda model, rows: [model(rows)[:, 0]], "one loss a record"),
    ],
}
STREAMS: list[tuple[dict[str, Any], str]] = [
    *(({"physical_size": size}, f"physical_size = {size}") for size in (0, True, 2.0)),
    ({"data": numbered(22)}, "the run says 23; the data have 22"),
    ({"run": {"records": 3}}, "run:"),
]
CLASSES: list[tuple[Any, tuple[Any, ...]]] = [
    (Softmax(feature_norm=1.0), (None, 1, True, 2.0)),
    (Softmax(feature_norm=1.0, classes=3), (4,)),
    (Logistic(feature_norm=1.0), (3, True)),
    (LeastSquares(feature_norm=1.0, residual_bound=1.0), (2,)),
]
CALLS: list[tuple[Callable[[], Any], str]] = [
    *((lambda call=call, given=given: call(given), said) for call, table in TABLES.items() for given, said in table),
    *((lambda make=make: clipper(make()), said) for make, said in MIXING),
    *((lambda given=given: stream(**given), said) for given, said in STREAMS),
    *((lambda loss=loss, number=number: loss.for_classes(number), "classes: got") for loss, numbers in CLASSES for number in numbers),
    *((lambda part=part: proximal_step((*RIDGE, part)), f"regulariser.kind: got {part.kind}") for part in NOT_OF_LINEAR_MODELS),
    *((lambda read=read: MapStyleSource([{"x": 1.0}] * 2, **read), f"MapStyleSource: .*{next(iter(read))}") for read in READING),
    (lambda: inward(1.0, 10_000_000, torch.float32), "too uncertain"),
    (lambda: Journal(Path("missing") / "journal"), "cannot be opened"),
    (lambda: Clipper(None, make_network()), "model: got NoneType"),  # pyright: ignore[reportArgumentType]
    (lambda: Clipper(make_network(), None), "losses: got NoneType"),  # pyright: ignore[reportArgumentType]
    (lambda: clipper(make_network(), clip_norm=0.0), "clip_norm"),
    (lambda: clipper(make_network(), method="none"), "method: got 'none'"),
    (lambda: clipper(make_network(), isolation="none"), "isolation: got 'none'"),
    (lambda: clipper(make_network(), gradient_memory=-1), "gradient_memory"),
    (lambda: clipper(make_network(), gradient_memory="8 MiB"), "gradient_memory"),
    (lambda: clipped(lambda model, rows: model(rows)[:, 0], torch.zeros(())), "records along their first dimension"),
    (lambda: clipped(lambda model, rows: 0, {"a": torch.zeros(3, 4), "b": torch.zeros(2)}), "records along their first dimension"),
    (lambda: checkpoints(folder=""), "checkpoints: got ''"),
    (lambda: checkpoints(folder="a", every=0), "every = 0"),
    (lambda: checkpoints(folder="a", also=[1]), "also: got"),
    (lambda: checkpoints(folder="a", also={"step": 3}), "needs state_dict"),
    (lambda: seeded_generators(1.5, (CPU,)), "seed: got"),  # pyright: ignore[reportArgumentType]
    (lambda: targets([0.0, INF, 1.0], classes=None), r"targets\[1\]"),
    (lambda: noise(1.0, torch.zeros(3, dtype=torch.bfloat16)), "bfloat16"),
    (lambda: noise(1.0, torch.zeros(3, dtype=torch.int64)), "int64"),
    (lambda: noise(1.0, torch.zeros(1).expand(4)), "share memory"),
    (lambda: noise(1.0, torch.zeros(3).to_sparse()), "not stored"),
    (lambda: secure(1e-3, NAN), "grid of noise"),
    (lambda: secure(1e-3, 1e9), "grid of noise"),
    (lambda: grid_noise_std(1.0, 0.0, 3), "sensitivity"),
    (lambda: grid_noise_std(1e9, 1.0, 10**6), "outweighs"),
    (lambda: curvature(data="private"), "not private"),
    (lambda: curvature(tolerance=NAN), "tolerance"),
    (lambda: curvature(parameters=[]), "none"),
    (lambda: curvature(parameters=[torch.ones(3)]), "no gradient"),
    (lambda: curvature(parameters=[POINT, torch.ones(3).double().requires_grad_()]), "two types"),
    (lambda: curvature(loss=lambda: POINT**2), "one number"),
    (lambda: curvature(loss=lambda: (POINT - 1).abs().sqrt().sum() * torch.inf), "not finite"),
    (lambda: own_proximal(ProximalGroup(regularisers=RIDGE, parameters=("a", "a"))), "twice"),
    (lambda: own_proximal(ProximalGroup(regularisers=(Box(half_width=1.0, dimension=3),))), "21 numbers"),
    (lambda: own_proximal(ProximalGroup(regularisers=(Ball(radius=1e-40),))), "radius"),
    (lambda: own_proximal(ProximalGroup(regularisers=RIDGE, blocks="columns")), "blocks"),  # pyright: ignore[reportArgumentType]
    (lambda: own_proximal(ProximalGroup(regularisers=(NuclearNorm(strength=1.0),))), "matrices"),
    (lambda: own_proximal(ProximalGroup(regularisers=(Ball(radius=1.0), Box(half_width=1.0, dimension=21)))), "no exact proximal step"),
    (lambda: own_proximal(ProximalGroup(regularisers=(Simplex(total=1.0), L1(strength=1.0)))), "no exact proximal step"),
    *((lambda size=size: own_proximal(step_size=size), "step_size") for size in (0.0, -1.0, NAN, True)),
]


@pytest.mark.parametrize(("call", "said"), CALLS)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning", "ignore:Complex modules:UserWarning")
def test_it_is_refused_by_name_in_three_lines(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(LetheError, match=said) as refused:
        call()
    assert len(str(refused.value).splitlines()) <= 3
