"""Training without gradients: slopes against autograd, what one record moves, the law of the noise, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from networks import CROSS_ENTROPY, RECORDS, make_data, make_network, make_network_run
from scipy import stats
from torch import Tensor, nn

import lethe
from lethe.train import PrivacyEngine, TrainOptions, fit
from lethe.train.core.generators import seeded_generators

CPU = torch.device("cpu")


def _run(**changes: Any) -> lethe.Run:
    return make_network_run("full", **{"steps": 1, "clip_norm": 1e6, "step_size": 0.1, **changes})


def _fit(run: lethe.Run, model: nn.Module | None = None, data: Any = None, loss: Any = CROSS_ENTROPY, **options: Any) -> Any:
    options = {"method": "directional", "seed": 3, "progress": False, "smoothing": 1e-5, **options}
    return fit(
        make_network() if model is None else model, loss, make_data() if data is None else data, run, options=TrainOptions(**options)
    )


def _direction(model: nn.Module, steps: int = 1, step: int = 0) -> list[Tensor]:
    """The direction of a step under the seed 3."""
    seeds = torch.randint(2**62, (steps,), generator=seeded_generators(3, (CPU, CPU, CPU))[2]).tolist()
    drawn = torch.Generator().manual_seed(seeds[step])
    return [torch.randn(parameter.shape, generator=drawn, dtype=parameter.dtype) for parameter in model.parameters()]


def _slopes(model: nn.Module, data: tuple[Tensor, Tensor], direction: list[Tensor]) -> Tensor:
    """By autograd, record by record."""
    slopes = []
    for row in range(len(data[1])):
        loss = CROSS_ENTROPY(model(data[0][row : row + 1]), data[1][row : row + 1]).sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        slopes.append(sum(float((one * along).sum()) for one, along in zip(gradients, direction, strict=True)))
    return torch.tensor(slopes, dtype=torch.float64)


def _along(before: nn.Module, after: nn.Module, direction: list[Tensor]) -> float:
    """How far the parameters moved along a direction, in units of it; all of the way is along it."""
    moved = torch.cat([(b - a).flatten() for a, b in zip(before.parameters(), after.parameters(), strict=True)]).detach()
    flat = torch.cat([one.flatten() for one in direction])
    length = float(moved @ flat / (flat @ flat))
    assert torch.allclose(moved, length * flat, atol=1e-12 * float(flat.abs().max()) + 1e-13)
    return length


@pytest.mark.parametrize("clip_norm", [1e6, 0.3])
@pytest.mark.parametrize("physical_size", [None, 4])
def test_a_step_is_the_sum_of_clipped_slopes(clip_norm: float, physical_size: int | None) -> None:
    start = make_network()
    direction = _direction(start)
    slopes = _slopes(start, make_data(), direction)
    assert float(slopes.abs().max()) > 0.3
    fitted = _fit(_run(clip_norm=clip_norm), physical_size=physical_size)
    expected = -0.1 / RECORDS * float(slopes.clamp(-clip_norm, clip_norm).sum())
    assert _along(start, fitted.model, direction) == pytest.approx(expected, rel=1e-3)


def test_one_record_moves_a_step_by_the_clip_norm_and_no_more() -> None:
    """One record among others is zeroed out; a clip norm one per cent larger than stated would show."""
    inputs, _ = make_data()
    start, run = make_network(), _run(clip_norm=0.01)
    direction = _direction(start)
    weight = torch.ones(RECORDS)

    def losses(outputs: Tensor, rows: Tensor) -> Tensor:
        return outputs.sum(1) * weight[rows]

    rows = torch.arange(RECORDS)
    moved = []
    for present in (1.0, 0.0):
        weight[0] = present
        moved.append(_along(start, _fit(run, data=(inputs, rows), loss=losses).model, direction))
    bound = 0.1 * 0.01 / RECORDS
    assert 0.999 * bound <= abs(moved[0] - moved[1]) <= bound


def test_the_noise_is_that_of_the_recorded_run() -> None:
    """Losses that do not depend on the parameters: each step moves along its direction by normal noise of the recorded deviation."""
    steps = 400
    run = _run(steps=steps, clip_norm=2.0, noise_multiplier=1.5)
    data = torch.randn(RECORDS, 4, dtype=torch.float64), torch.arange(RECORDS)

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, rows: Tensor) -> Tensor:
            return rows.sum(1) + 0.0 * self.weight.sum()

    model = Constant()
    fitted = _fit(run, model, data=data, loss=lambda outputs, _: outputs)
    directions = torch.stack([_direction(model, steps, step)[0] for step in range(steps)], dim=1)
    # Given the directions the sum is normal with covariance tau^2 U U^T.
    whitened = torch.linalg.solve(torch.linalg.cholesky(directions @ directions.T), model.weight.detach()) / float(run.noise_stds[0])
    assert 1e-4 < stats.chi2.sf(float(whitened @ whitened), 3) < 1 - 1e-4
    assert fitted.run.replace(seeded=False) == run.replace(clip_method="directional")


def test_noise_has_its_deviation_in_many_first_steps() -> None:
    run, lengths = _run(clip_norm=2.0, noise_multiplier=1.5, batches=lethe.batches.Full()), []
    start = make_network()
    for seed in range(300):
        seeds = torch.randint(2**62, (1,), generator=seeded_generators(seed, (CPU, CPU, CPU))[2]).tolist()
        drawn = torch.Generator().manual_seed(seeds[0])
        direction = [torch.randn(parameter.shape, generator=drawn, dtype=parameter.dtype) for parameter in start.parameters()]
        model = _fit(run, loss=lambda outputs, _: 0.0 * outputs.sum(1), seed=seed).model
        lengths.append(_along(start, model, direction) / float(run.noise_stds[0]))
    assert stats.kstest(lengths, "norm").pvalue > 1e-4
    assert stats.chi2.cdf(np.square(lengths).sum(), 300) < 1 - 1e-5  # one per cent is below what 300 draws can show


def test_directions_and_noise_are_unrelated() -> None:
    one, other = (float(next(_fit(_run(noise_multiplier=1.0), seed=seed).model.parameters())[0, 0].detach()) for seed in (1, 2))
    assert one != other
    fresh = _fit(_run(noise_multiplier=1.0), seed=None)
    assert not fresh.run.seeded


def test_it_learns_and_is_certified() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2000, 5, generator=generator)
    targets = (inputs @ torch.tensor([1.0, -2.0, 0.5, 0.0, 1.0]) > 0).long()
    model = nn.Sequential(nn.Linear(5, 2), nn.Dropout(0.5), nn.BatchNorm1d(2, affine=False)).train()
    options = TrainOptions(method="directional", progress=False)
    fitted = fit(
        model, nn.CrossEntropyLoss(), (inputs, targets), epsilon=3.0, delta=1e-5, epochs=20, batch_size=100, lr=0.1, options=options
    )
    assert fitted.run.clip_method == "directional"
    assert fitted.epsilon <= 3.0
    assert model.training
    assert model[1].training
    assert float(model[2].running_mean.abs().max()) == 0.0  # in eval mode it learns nothing of the records
    accuracy = float((model.eval()(inputs).argmax(1) == targets).double().mean())
    assert accuracy > 0.85
    last = fitted.run.replace(release="last", loss=lethe.losses.Convex(smoothness=1.0), regulariser=lethe.regularisers.Ball(1.0))
    assert lethe.certify(last, 1e-5).theorem in ("composition", "random-allocation")  # noise is along the direction alone


def test_the_last_iterate_has_unit_directions_and_noise_everywhere() -> None:
    """Without noise a step is the clipped sum along the unit vector; with it, what is across has the recorded deviation too."""
    loss = {"kind": "convex", "smoothness": 1.0}
    start, run = make_network(), _run(release="last", clip_norm=0.05, loss=loss)
    direction = _direction(start)
    norm = math.sqrt(sum(float(one.square().sum()) for one in direction))
    unit = [one / norm for one in direction]
    expected = -0.1 / RECORDS * float(_slopes(start, make_data(), unit).clamp(-0.05, 0.05).sum())
    fitted = _fit(run)
    assert _along(start, fitted.model, unit) == pytest.approx(expected, rel=1e-3)
    assert fitted.run.clip_method == "directional_isotropic"
    noisy = run.replace(noise_multiplier=50.0, steps=40)
    first = torch.cat([one.detach().flatten() for one in start.parameters()])
    moved = torch.cat([one.detach().flatten() for one in _fit(noisy).model.parameters()]) - first
    spread = float(moved.square().sum()) / float(np.square(noisy.noise_stds).sum())
    assert 1e-4 < stats.chi2.sf(spread, moved.numel()) < 1 - 1e-4
    many = run.replace(noise_multiplier=50.0, steps=400, batches=lethe.batches.Cyclic(1), clip_norm=0.05)
    certificate = lethe.certify(_fit(many, seed=None).run, 1e-3)
    assert certificate.theorem == "optimal-shift"
    assert certificate.lipschitz is not None
    assert certificate.lipschitz.constant == pytest.approx(1 / math.sqrt(1 - 0.1 / 4), rel=1e-9)
    assert certificate.epsilon < lethe.certify(many.replace(release="all", clip_method="directional"), 1e-3).epsilon


def test_a_float32_model_has_no_last_iterate() -> None:
    with pytest.raises(lethe.InputError, match="float64"):
        _fit(_run(release="last"), make_network(torch.float32), make_data(torch.float32))


class Writing(nn.Module):
    def __init__(self, seen: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3).double()
        if isinstance(seen, nn.Parameter):
            self.seen = seen
        else:
            self.register_buffer("seen", seen)

    def forward(self, rows: Tensor) -> Tensor:
        self.seen += rows.sum(0)
        return self.linear(rows)


class Looking(nn.Module):
    """Reads a table whose rows PyTorch shortens as they are read, in eval mode too."""

    def __init__(self, *, trained: bool) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(20, 8, max_norm=1.0), nn.Linear(8, 2)
        self.table.weight.requires_grad_(trained)

    def forward(self, rows: Tensor) -> Tensor:
        return self.linear(self.table(rows).mean(1))


WORDS = (torch.zeros(RECORDS, 3, dtype=torch.int64), torch.zeros(RECORDS, dtype=torch.int64))
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "regulariser": ({"regulariser": {"kind": "ridge", "strength": 0.1}}, {}, "regulariser"),
    "other method": ({"clip_method": "normalise"}, {}, "clip_method: normalise"),
    "enforced": ({}, {"isolation": "enforced"}, "isolation: enforced"),
    "checkpoints": ({}, {"checkpoints": "nowhere"}, "checkpoints"),
    "secure": ({}, {"secure": True, "seed": None}, "secure"),
    "smoothing": ({}, {"smoothing": 0.0}, "smoothing = 0"),
    "smoothing of a word": ({}, {"smoothing": "small"}, "smoothing = 'small'"),
    "unknown isolation": ({}, {"isolation": "trusted"}, "isolation: got 'trusted'"),
    "noise policy": ({}, {"noise_policy": lambda *_: 1.0}, "noise_policy"),
    "nothing to train": ({}, {"model": make_network().requires_grad_(False)}, "nothing to train"),
    "not clipped": ({"clip_norm": None, "loss": {"kind": "unknown", "gradient_bound": 1.0}}, {}, "clip_norm"),
    "mixed": ({}, {"loss": lambda outputs, _: (outputs - outputs.mean(0)).sum(1)}, "alone"),
    "one number": ({}, {"loss": lambda outputs, _: outputs.sum()}, "one loss a record"),
    "writes a buffer": ({}, {"model": Writing(torch.zeros(4, dtype=torch.float64))}, "writes"),
    "writes a frozen parameter": ({}, {"model": Writing(nn.Parameter(torch.zeros(4, dtype=torch.float64), requires_grad=False))}, "writes"),
    "trains a table with max_norm": ({}, {"model": Looking(trained=True), "data": WORDS}, "max_norm"),
    "reads a table with max_norm": ({}, {"model": Looking(trained=False), "data": WORDS}, "max_norm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    changes, options, message = REFUSED[name]
    with pytest.raises(lethe.LetheError, match=message):
        _fit(_run(**changes), **options)


def test_a_step_size_is_asked_for_and_optimisers_and_engines_refuse() -> None:
    options = TrainOptions(method="directional", progress=False)
    with pytest.raises(lethe.InputError, match="lr: none"):
        fit(make_network(), CROSS_ENTROPY, make_data(), epsilon=3.0, delta=1e-3, options=options)
    with pytest.raises(lethe.InputError, match="optimizer"):
        fit(make_network(), CROSS_ENTROPY, make_data(), _run(), optimizer="adam", lr=0.1, options=options)
    model = make_network()
    run = _run(clip_method="directional")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(lethe.InputError, match="directional"):
        PrivacyEngine(model, optimizer, CROSS_ENTROPY, make_data(), run)
    assert math.isfinite(run.record_bound)


def test_a_loss_that_is_no_number_adds_nothing() -> None:
    start = make_network()
    direction = _direction(start)
    inputs, targets = make_data()
    rest = float(_slopes(start, (inputs[1:], targets[1:]), direction).sum())
    inputs[0, 0] = float("nan")
    fitted = _fit(_run(), data=(inputs, targets))
    assert _along(start, fitted.model, direction) == pytest.approx(-0.1 / RECORDS * rest, rel=1e-3)
