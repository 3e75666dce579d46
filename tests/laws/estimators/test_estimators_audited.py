"""Audits of what `fit` releases by a referee that shares nothing with the proofs: below the claim as it is, above it with less noise."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from how_many import by_night

import lethe.estimators.choice.descents
from lethe.audit import AuditSetting, two_world
from lethe.audit.statistics.curves import GaussianCurve
from lethe.audit.statistics.result import AuditResult
from lethe.audit.statistics.rules import Split
from lethe.estimators import HeavyTailedLinearRegression, PrivateMean
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import choose
from lethe.estimators.choice.mechanism import Penalties, RandomSources
from lethe.estimators.heavy_tailed.base import HeavyTailedEstimator
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.run.losses import Logistic, Softmax, TruncatedLogistic, TruncatedSoftmax
from lethe.run.losses.linear import LinearLoss
from lethe.train.network.noise.gaussian import NetworkNoise

FITS, EPSILON, DELTA = 200, 3.0, 1e-3  # 16 times 200 fits with the least noise below, of other seeds, showed 5.3 or more
MANY = FITS if by_night() else 120
LESS = 0.35  # of the noise: half of it leaks about 7, and so few fits show 2 to 6 of that
NEARLY = 0.75
Worlds = Callable[[float, int], float]  # (the size of the noise, a seed) -> a score


class Scaled(np.random.Generator):
    """Normal noise times a factor."""

    def __init__(self, seed: int, factor: float) -> None:
        super().__init__(np.random.PCG64(seed))
        self.factor = factor

    def standard_normal(self, *args: Any, **kwargs: Any) -> Any:
        return self.factor * super().standard_normal(*args, **kwargs)


class ScaledTorch(NetworkNoise):
    """The same for runs."""

    factor = 1.0

    def add(self, tensors: Any, noise_std: float, **options: Any) -> None:
        super().add(tensors, self.factor * noise_std, **options)


def audit(without: Worlds, present: Worlds, factor: float, neighbours: Any, fits: int = FITS) -> AuditResult:
    """A lower bound, wrong once in a hundred of such games; the seeds are fixed."""
    scores = [[world(factor, seed + 10_000 * place) for seed in range(fits)] for place, world in enumerate((without, present))]
    setting = AuditSetting(delta=DELTA, neighbours=neighbours, threat="final_model", level=0.01, curve=GaussianCurve())
    return two_world(scores[0], scores[1], setting, rule=Split(seed=0))


def linear(monkeypatch: pytest.MonkeyPatch, name: str, loss: LinearLoss, neighbours: Any) -> tuple[Worlds, Worlds]:
    """Two records of one feature, the second without any: near weights of 0 both labels have the longest gradient that the cut allows."""
    asked = {"passes": 1} if name not in ("objective_perturbation", "output_perturbation") else {}
    bound = 0.25 if isinstance(loss, Logistic | Softmax) else None
    facts = PublicFacts(records=2, columns=1, loss=loss, intercept=False, neighbours=neighbours, ridge=8.0, envelope=bound, **asked)
    plan = choose(name, facts, PrivacyBudget(epsilon=EPSILON, delta=DELTA)).plan

    def world(label: float, present: float, factor: float, seed: int) -> float:
        table, targets = np.array([[present], [0.0]]), np.array([label, 0.0])
        # Last in the order: no later noise hides the record.
        records = Records(table, targets, loss=loss, feature_norm=1.0, intercept=False, order=np.array([1, 0]))
        torch_source = torch.Generator().manual_seed(seed)
        batches, mechanism = torch.Generator().manual_seed(seed + 1), Scaled(seed, factor)
        draws = RandomSources(None, norm=None, batches=batches, noise=torch_source, mechanism=mechanism, seeded=True)
        with monkeypatch.context() as patch:
            patch.setattr(ScaledTorch, "factor", factor)
            patch.setattr(lethe.estimators.choice.descents, "NetworkNoise", ScaledTorch)
            outcome = plan.train(records, draws, Penalties(facts.ridge, facts.l1))
        assert bound is None or (outcome.run is not None and (outcome.run.clip_method, outcome.run.clip_norm) == ("envelope", bound))
        assert outcome.statement.planned.epsilon(DELTA) <= EPSILON
        return float(outcome.weights[0, -1] - (outcome.weights[0, 0] if loss.outputs > 1 else 0.0))

    without = partial(world, 0.0, 1.0) if neighbours == "replace_one" else partial(world, 0.0, 0.0)
    return without, partial(world, 1.0, 1.0)


def heavy(monkeypatch: pytest.MonkeyPatch, model: Any, without: Any, present: Any, read: str) -> tuple[Worlds, Worlds]:
    """Two data sets, and which attribute is the score."""

    def world(data: tuple[Any, ...], factor: float, seed: int) -> float:
        def chance(self: Any, records: int, *, stored_order: bool) -> RandomSources:
            assert not stored_order
            early, late, torch_source = Scaled(seed + 1, factor), Scaled(seed, factor), torch.Generator()
            return RandomSources(np.arange(records), norm=early, batches=torch_source, noise=torch_source, mechanism=late, seeded=True)

        with monkeypatch.context() as patch:
            patch.setattr(HeavyTailedEstimator, "_randomness", chance)
            model.fit(*data)
        assert model.statement_.planned.epsilon(model.delta_) <= EPSILON
        return float(np.ravel(getattr(model, read))[0])

    return partial(world, without), partial(world, present)


def cases(monkeypatch: pytest.MonkeyPatch, name: str, neighbours: Any) -> tuple[Worlds, Worlds]:
    replaced = neighbours == "replace_one"
    common = {"epsilon": EPSILON, "delta": DELTA, "neighbours": neighbours}
    rows, other = np.array([[1.0], [0.0], [0.0]]), np.array([[1.0 if replaced else 0.0], [0.0], [0.0]])
    values = np.array([1e6, 0.0, 0.0])
    if name == "heavy_regression":  # a gradient that is clipped at every step, whatever the weights are
        model = HeavyTailedLinearRegression(moment=1.0, smoothness=1.0, fit_intercept=False, **common)
        return heavy(monkeypatch, model, (other, -values), (rows, values), "coef_")
    model = PrivateMean(moment=1.0, centre=[0.0], **common)
    return heavy(monkeypatch, model, (np.array([[-1e6 if replaced else 0.0], [0.0], [0.0]]),), (1e6 * rows,), "mean_")


def judge(without: Worlds, present: Worlds, neighbours: Any, factor: float, fits: int = FITS) -> None:
    assert audit(without, present, 1.0, neighbours, fits).epsilon <= EPSILON
    assert audit(without, present, factor, neighbours, fits).epsilon > EPSILON


LOGISTIC, SOFTMAX = TruncatedLogistic(feature_norm=1.0, cut=0.5), TruncatedSoftmax(feature_norm=1.0, classes=2, cut=0.5)
# Every pair of two of the three. What a tilted minimiser leaks depends on loss and neighbours together; elsewhere the loss gives the bound
# on a gradient and the neighbours how many of these two data sets are apart, one factor each.
CUT = [
    pytest.param(name, loss, neighbours, id=f"{name}-{loss.name.replace(' ', '_')}-{neighbours}")
    for name, loss, neighbours in (
        *(("objective_perturbation", loss, neighbours) for loss in (LOGISTIC, SOFTMAX) for neighbours in ("replace_one", "zero_out")),
        *((name, LOGISTIC, "replace_one") for name in ("output_perturbation", "pass_ends")),
        *((name, SOFTMAX, "zero_out") for name in ("output_perturbation", "pass_ends")),
        ("cyclic", LOGISTIC, "zero_out"),
        ("cyclic", SOFTMAX, "replace_one"),
    )
]


# The slope at weights of 0 is beyond the envelope's bound, so a record's gradient is as long as that allows.
ENVELOPES = [
    pytest.param("pass_ends", loss, neighbours, id=f"envelope-{loss.name}-{neighbours}")
    for loss in (Logistic(feature_norm=1.0), Softmax(feature_norm=1.0, classes=2))
    for neighbours in ("replace_one", "zero_out")
]


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("name", "loss", "neighbours"), [*CUT, *ENVELOPES])
def test_cut_losses_and_envelopes_leak_what_is_claimed_and_no_more(
    name: str, loss: LinearLoss, neighbours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fit by a perturbation takes long. A record that is zeroed out has no features, so no gradient and no curvature.
    judge(*linear(monkeypatch, name, loss, neighbours), neighbours, LESS, 120 if name.endswith("perturbation") else MANY)


@pytest.mark.nightly(by_day="test_cut_losses_and_envelopes_leak_what_is_claimed_and_no_more")
@pytest.mark.parametrize(("name", "loss", "neighbours"), ENVELOPES[1:3])
def test_three_quarters_of_the_noise_are_too_few_along_envelopes(
    name: str, loss: LinearLoss, neighbours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many fits: a bound that is three quarters of the true one is seen, and the true one is not exceeded."""
    judge(*linear(monkeypatch, name, loss, neighbours), neighbours, NEARLY, 3000)


@pytest.mark.parametrize(
    ("name", "neighbours"),
    [
        ("mean", "replace_one"),
        *(
            pytest.param(name, neighbours, marks=pytest.mark.nightly)
            for name in ("heavy_regression", "mean")
            for neighbours in ("replace_one", "zero_out")
            if (name, neighbours) != ("mean", "replace_one")
        ),
    ],
)
def test_heavy_tailed_estimators_leak_what_is_claimed_and_no_more(name: str, neighbours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A record that is zeroed out is half as far from the worst one as that from its opposite, and has the same noise.
    judge(*cases(monkeypatch, name, neighbours), neighbours, LESS if neighbours == "replace_one" else LESS / 2.0, MANY)
