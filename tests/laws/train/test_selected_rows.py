"""Rows that are selected and the noise in them are one Gaussian release: what the trainer does, against what the certificate counts."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import lethe
from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.errors import InputError
from lethe.run.losses import Smooth
from lethe.train import SparseSelection
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.parts.selection import selection_multipliers
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.training_noise import TrainingNoise
from lethe.train.network.steps import NoisySums

DELTA = 1e-5


def run(**changes: Any) -> lethe.Run:
    """One step on all records."""
    fields = {"records": 4, "batches": {"design": "full"}, "steps": 1, "step_size": 1.0, "clip_norm": 0.5, "noise_multiplier": 3.0}
    return lethe.Run(**{**fields, "release": "all", "sparse_selection": 0.2, **changes})


@pytest.mark.parametrize("share", [1e-9, 0.1, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("multiplier", [1e-3, 0.7, 3.0, 1e6])
def test_two_noises_are_worth_one(multiplier: float, share: float) -> None:
    """1/z1^2 + 1/z2^2 is at most 1/z^2, in exact arithmetic, and no more than twelve digits below."""
    rows, gradients = (np.longdouble(one) for one in selection_multipliers(multiplier, share))
    together = (1 / rows**2 + 1 / gradients**2) * np.longdouble(multiplier) ** 2
    assert 1 - 1e-12 < together <= 1 + 2.0**-60
    assert selection_multipliers(0.0, share) == (0.0, 0.0)


class Two(nn.Module):
    """Two tables and a number that all records share; what a record's gradient is, the record says."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(5, 2, dtype=torch.float64), nn.Embedding(6, 2, dtype=torch.float64)
        self.shared = nn.Linear(1, 1, bias=False, dtype=torch.float64)

    def forward(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Tokens (B, 2) of both, and by what the tables and the number are multiplied: (B,) each."""
        tokens, tables, shared = batch
        looked_up = self.users(tokens[:, :1]).sum((1, 2)) + self.items(tokens[:, 1:]).sum((1, 2))
        return tables * looked_up + self.shared(shared[:, None])[:, 0]


class Noted(NetworkNoise):
    """Adds nothing, and notes how much it was asked to add."""

    def __init__(self) -> None:
        super().__init__(fresh_numpy_generator())
        self.stds: list[tuple[float, ...]] = []

    def selected_mean(self, sums: Tensor, row_std: float, threshold: float, noise_std: float, divisor: float, dtype: torch.dtype) -> Tensor:
        self.stds.append((row_std, noise_std))
        return super().selected_mean(sums, 0.0, 0.0, 0.0, divisor, dtype)

    def add(self, tensors: Any, noise_std: float, **rest: Any) -> None:
        if noise_std:
            self.stds.append((noise_std,))


def exact_mu(one: tuple[int, int, float, float], other: tuple[int, int, float, float], asked: lethe.Run, norm: float) -> float:
    """Of the two releases of one step as one Gaussian: the first of four records is `one` or `other`; as the trainer sums and noises."""
    model, selection = Two(), SparseSelection(parameters=("users.weight", "items.weight"), threshold=1.0, share=0.2, contribution_norm=norm)
    selected = selection.of(dict(model.named_parameters()))
    tables = selected.tables
    released = list[dict[nn.Parameter, Tensor]]()
    for first in (one, other):
        rows = [first, (0, 0, 1.0, 2.0), (0, 1, 3.0, 0.0), (4, 5, 0.1, 0.1)]
        clipper = Clipper(model, model, clip_norm=0.5, contributing=tables)
        clipper.add((torch.tensor([row[:2] for row in rows]), *(torch.tensor([row[k] for row in rows]).double() for k in (2, 3))))
        released.append(clipper.take(rows=True))
    noise = Noted()
    NoisySums(asked, TrainingNoise(noise), None, None, selected)(1, {key: total.clone() for key, total in released[0].items()})
    squared = 0.0
    for parameter, stds in zip(released[0], noise.stds[:2] + noise.stds[-1:], strict=True):
        difference = released[0][parameter].to_dense() - released[1][parameter].to_dense()
        gradients = difference[:, :-1] if parameter in tables else difference
        squared += float(gradients.square().sum()) / stds[-1] ** 2
        if parameter in tables:
            squared += float(difference[:, -1].square().sum()) / stds[0] ** 2
    return math.sqrt(squared)


NOTHING = (1, 2, 0.0, 0.0)


@pytest.mark.parametrize("norm", [1.0, 1.5])
def test_the_trainers_step_is_as_private_as_certified_and_not_more(norm: float) -> None:
    """A record against none: its map and its clipped gradient at their norms, so that one per cent less noise would be seen."""
    asked = run(neighbours="zero_out")
    certified = 1.0 / float(asked.relative_noise[0])
    found = [exact_mu(record, NOTHING, asked, norm) for record in ((1, 2, 1.0, 2.0), (0, 0, 5.0, 0.0), (1, 0, 1e-3, 7.0))]
    assert max(found) <= certified
    # One row of each table is a map of norm 1, where a larger one may be allowed.
    assert min(found) == pytest.approx(math.sqrt(0.2 / norm**2 + 0.8) * certified, rel=1e-6)


@pytest.mark.parametrize("norm", [1.0, 1.5])
def test_one_record_for_another_is_at_most_twice_as_far_and_nearly_so(norm: float) -> None:
    """Other rows, and opposite gradients in what both share: 2/z1^2 + 4/z2^2, below the 4/z^2 that is certified."""
    asked = run(neighbours="replace_one")
    certified = 1.0 / float(asked.relative_noise[0])
    assert certified == pytest.approx(2.0 / 3.0)
    found = exact_mu((1, 2, 1e-6, 9.0), (3, 4, -1e-6, -9.0), asked, norm)
    assert found == pytest.approx(math.sqrt(2 * 0.2 / norm**2 + 4 * 0.8) / 3.0, rel=1e-6)
    assert found <= certified


def release(noise_std: float, row_std: float, threshold: float, contributed: float, gradient: float, draws: int) -> np.ndarray[Any, Any]:
    """What is released of one row, drawn so often: its gradient, or nan."""
    noise = NetworkNoise(fresh_numpy_generator())
    values = torch.tensor([[gradient, contributed]], dtype=torch.float64).expand(draws, 2)
    sums = torch.sparse_coo_tensor(torch.arange(draws)[None], values, (draws, 2), is_coalesced=True, check_invariants=False)
    rows = noise.selected_mean(sums, row_std, threshold, noise_std, 1.0, torch.float64)
    found = torch.full((draws,), math.nan, dtype=torch.float64)
    found[rows.indices()[0]] = rows.values()[:, 0]
    return found.numpy()


@pytest.mark.parametrize("contributed", [0.0, 1.0])
def test_what_is_released_of_a_row_has_its_law(contributed: float) -> None:
    """Selected with the chance of a normal number above the threshold, then a normal number; 4e5 draws, errors of 1e-6 in a run."""
    found = release(2.0, 1.5, 1.2, contributed, -3.0 * contributed, 400_000)
    selected = found[~np.isnan(found)]
    chance = stats.norm.sf((1.2 - contributed) / 1.5)
    assert abs(len(selected) / len(found) - chance) < 5 * math.sqrt(chance * (1 - chance) / len(found))
    assert stats.kstest(selected, "norm", args=(-3.0 * contributed, 2.0)).pvalue > 1e-6


@pytest.mark.parametrize("threshold", [0.0, 2.0, 6.0])
def test_the_exact_law_of_a_row_is_within_its_certificate(threshold: float) -> None:
    """delta of (selected?, gradient) between a record and none, integrated, both ways, at several epsilons."""
    z, share = 0.8, 0.3
    rows, gradients = selection_multipliers(z, share)
    kept = [stats.norm.sf((threshold - here) / rows) for here in (1.0, 0.0)]
    guarantee = lethe.guarantees.GDP(1.0 / z)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        for one, other in (((kept[0], 1.0), (kept[1], 0.0)), ((kept[1], 0.0), (kept[0], 1.0))):

            def excess(x: float, one: Any = one, other: Any = other, epsilon: float = epsilon) -> float:
                density = (chance * stats.norm.pdf(x, mean, gradients) for chance, mean in (one, other))
                return max(next(density) - math.exp(epsilon) * next(density), 0.0)

            delta = integrate.quad(excess, -12, 13, limit=200)[0] + max(1 - one[0] - math.exp(epsilon) * (1 - other[0]), 0.0)
            assert delta <= guarantee.delta(epsilon) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("design", ["full", "poisson", "cyclic", "shuffled", "random_allocation", "without_replacement"])
def test_a_certificate_is_that_of_one_gaussian_release(design: str) -> None:
    """The same run without a selection, whose noise multiplier is that of both together; also by its file, and planned."""
    batches = {"design": design} if design == "full" else {"design": design, "size": 20}
    asked = run(records=1000, batches=batches, steps=50)
    certificate, plain = lethe.certify(asked, DELTA), lethe.certify(asked.replace(sparse_selection=None), DELTA)
    assert certificate.epsilon == plain.epsilon
    assert lethe.Run.from_document(asked.to_document()) == asked
    assert asked.to_document()["sparse_selection"] == 0.2
    assert lethe.plan(asked, epsilon=2.0, delta=DELTA).sparse_selection == 0.2


def test_a_smaller_gradient_bound_makes_the_map_of_rows_no_smaller() -> None:
    asked = run(loss=Smooth(smoothness=1.0, gradient_bound=0.1))
    assert asked.record_bound == asked.touch_bound == 0.5
    assert asked.replace(sparse_selection=None).record_bound == 0.1
    assert lethe.certify(asked, DELTA).epsilon == lethe.certify(run(), DELTA).epsilon


@pytest.mark.parametrize(
    "changes",
    [
        {"release": "last"},
        {"clip_groups": [0.5]},
        {"clip_norm": None, "loss": Smooth(smoothness=1.0, gradient_bound=0.1)},
        {"batches": {"design": "cyclic", "size": 2}, "noise_at": "pass_ends"},
        {"noise": {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5]}, "batches": {"design": "cyclic", "size": 2}},
    ],
)
def test_steps_that_do_not_pay_for_themselves_select_nothing(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"sparse_selection: got .* with"):
        run(**changes)
