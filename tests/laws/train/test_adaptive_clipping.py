"""A clip norm that follows a quantile: what a step tells of one record against the exact Gaussian, and where the norm goes."""

import math
from typing import Any

import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import make_network_run
from torch import Tensor, nn

import lethe
from lethe.calculus.guarantees import GDP
from lethe.run.fields import COUNT_SHARE
from lethe.train.clip.adaptive import AdaptiveNorm
from lethe.train.clip.clipper import Clipper
from lethe.train.network.steps import NoisySums

ADAPTIVE: dict[str, Any] = {"clip_method": "adaptive", "clip_quantile": 0.5}
MULTIPLIER = 1.3


class Spied:
    """In the place of noise: notes what it would be added to, and how much there would be."""

    secure, correlated = False, None

    def add_to(self, tensors: list[Tensor], noise_std: float) -> None:
        self.released, self.noise_std = torch.cat([tensor.flatten() for tensor in tensors]).clone(), noise_std


def step(run: lethe.Run, gradients: list[list[float]], norm: float, *, parts: int = 1) -> tuple[Tensor, float]:
    """The sums and the count of a step at this norm in force, and the standard deviation of their noise."""
    model, adaptive, noise = nn.Linear(2, 1, bias=False).double(), AdaptiveNorm(run), Spied()
    adaptive.norms = [norm]
    clipper = Clipper(model, lambda rows: model(rows)[:, 0], run.clip_bound, isolation="declared", adaptive=adaptive)
    for rows in torch.tensor(gradients, dtype=torch.float64).reshape(-1, 2).tensor_split(parts):
        clipper.add(rows)  # a linear loss: the gradient of a record is the record
    sums = clipper.take()
    adaptive.count = sums.pop(adaptive.key)
    NoisySums(run, noise, None, adaptive)(1, sums)  # pyright: ignore[reportArgumentType]
    return noise.released, noise.noise_std


gradients_of_some = st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)).map(list), min_size=1, max_size=5)


@settings(max_examples=examples(40))
@given(gradients=gradients_of_some, norm=st.floats(0.01, 100), near=st.one_of(st.none(), st.floats(0.99, 1.01)), neighbour=st.booleans())
def test_a_record_moves_a_step_by_no_more_than_one_over_the_multiplier(
    gradients: list[list[float]], norm: float, near: float | None, neighbour: bool
) -> None:
    """Taken out, which is zeroed out too; or replaced by another. Also with a norm near the one in force, where the count is between."""
    run = make_network_run(noise_multiplier=MULTIPLIER, **ADAPTIVE)
    if near is not None:
        gradients[0] = [norm * near, 0.0]
    others = gradients[1:]
    whole, noise_std = step(run, gradients, norm)
    least, _ = step(run, [*others, [0.0, 0.0]], norm)
    assert float((whole - least).norm()) / noise_std <= (1 + 1e-12) / MULTIPLIER
    if neighbour:
        other, _ = step(run, [[-one for one in gradients[0]], *others], norm)
        assert float((whole - other).norm()) / noise_std <= 2 * (1 + 1e-12) / MULTIPLIER


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_the_certificate_is_that_of_the_worst_record_and_would_not_bear_one_per_cent_less(delta: float) -> None:
    """A gradient above the norm, alone in full batches: the step is one Gaussian, whose trade-off is known."""
    full = {"batches": {"design": "full"}, "steps": 1, "neighbours": "add_or_remove", "noise_multiplier": MULTIPLIER}
    run = make_network_run(**full, **ADAPTIVE)
    for norm in (0.02, 0.4, 30.0):
        whole, noise_std = step(run, [[5 * norm, 0.0], [0.1 * norm, norm]], norm)
        least, _ = step(run, [[0.1 * norm, norm]], norm)
        distance = float((whole - least).norm()) / noise_std
        exact = GDP(distance).epsilon(delta)
        certified = lethe.certify(run, delta, allow_large_delta=True).epsilon
        assert 0.999 * certified < exact <= certified < GDP(1.01 * distance).epsilon(delta)


def test_what_a_count_costs_is_said() -> None:
    run = make_network_run(noise_multiplier=MULTIPLIER, **ADAPTIVE)
    said = lethe.certify(run, 1e-5).explain()
    assert f"{COUNT_SHARE:.0%} of each step's privacy" in said
    assert lethe.certify(run, 1e-5).epsilon == lethe.certify(make_network_run(noise_multiplier=MULTIPLIER), 1e-5).epsilon


@settings(max_examples=examples(40))
@given(gradients=gradients_of_some, parts=st.integers(1, 3))
def test_counts_are_exact_and_add_up_over_micro_batches(gradients: list[list[float]], parts: int) -> None:
    run = make_network_run(noise_multiplier=MULTIPLIER, **ADAPTIVE)
    released, _ = step(run, [*gradients, [0.0, 0.0]], 3.0, parts=parts)
    lengths = [math.hypot(*one) for one in gradients]
    shares = [0.0 if not (one**2) else min(max((1 - one / 3.0) * 2**9, -0.5), 0.5) for one in lengths]
    unit = AdaptiveNorm(run).unit
    assert abs(float(released[-1]) / unit - sum(shares)) <= len(shares) * 2.0**-12
    assert (float(released[-1]) / unit * 2**12).is_integer()


def test_records_without_a_finite_gradient_and_padding_are_not_counted() -> None:
    run = make_network_run(noise_multiplier=MULTIPLIER, **ADAPTIVE)
    alone, _ = step(run, [[1.0, 0.0]], 3.0)
    for useless in ([math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0]):
        assert torch.equal(step(run, [[1.0, 0.0], useless], 3.0)[0], alone)
    adaptive = AdaptiveNorm(run)
    counted = adaptive.counts(torch.ones(4).double(), torch.tensor([True, False, False, True]))
    assert float(counted) == -adaptive.unit


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("first", [1e-3, 50.0])
def test_the_norm_goes_to_the_quantile(quantile: float, first: float) -> None:
    run = make_network_run(clip_norm=first, clip_method="adaptive", clip_quantile=quantile)
    adaptive = AdaptiveNorm(run)
    lengths = torch.distributions.LogNormal(1.0, 1.0).icdf((torch.arange(1000).double() + 0.5) / 1000)
    for _ in range(400):
        adaptive.count = adaptive.counts(lengths, lengths > 0) / 1000
        adaptive.update()
    assert abs(float((lengths < adaptive.norm).double().mean()) - quantile) < 0.02
    again = AdaptiveNorm(run)
    again.load_state_dict(adaptive.state_dict())
    assert again.norms == adaptive.norms
    adaptive.count = torch.tensor([1e9])
    for _ in range(2000):
        adaptive.update()
    assert adaptive.norm == first / 2**20


def test_the_unit_of_a_count_is_rounded_down() -> None:
    unit = AdaptiveNorm(make_network_run(**ADAPTIVE)).unit
    exact = 2 * 0.4 * math.sqrt(COUNT_SHARE / (1 - COUNT_SHARE))
    assert exact * (1 - 2**-11) < unit <= exact
