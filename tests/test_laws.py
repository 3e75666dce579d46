"""Laws that every theorem obeys: theorem x law."""

import itertools
import math

import numpy as np
import pytest
from helpers import DESIGNS, NEIGHBOURS, batches, make_run
from scipy import stats

import lethe
from lethe.calculus.scaling import noise_scaled
from lethe.errors import HypothesisError
from lethe.hypotheses import first_failure
from lethe.theorems.base import Theorem
from lethe.theorems.registry import ALL, OURS

DELTA = 1e-5


def _epsilon(theorem: Theorem, run: lethe.Run) -> float | None:
    """None where the theorem refuses."""
    if first_failure(theorem.examine(run)) is not None:
        with pytest.raises(HypothesisError):
            theorem.bound(run)
        return None
    return theorem.bound(run).guarantee.epsilon(DELTA)


def _runs() -> list[lethe.Run]:
    runs = [make_run(batches=batches(design, 10), noise_multiplier=4.0) for design in DESIGNS]
    runs += [run.replace(release="all") for run in runs]
    runs += [make_run(batches=batches(design, 10), neighbours=relation) for design in ("full", "poisson") for relation in NEIGHBOURS]
    runs += [make_run(noise_at="pass_ends"), make_run(regulariser=[{"kind": "ridge", "strength": 0.5}, {"kind": "ball", "radius": 0.05}])]
    runs += [make_run(loss={"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2}, clip_norm=1.0)]
    return runs


CASES = [(theorem, run) for theorem in ALL for run in _runs() if first_failure(theorem.examine(run)) is None]
SOUND_CASES = [(theorem, run) for theorem, run in CASES if theorem.standing_on(run).usable]
OUR_CASES = [(theorem, run) for theorem, run in CASES if theorem in OURS]


def _name(value: object) -> str:
    return value.name if isinstance(value, Theorem) else f"{value.batches.design}-{value.release}-{value.run_id}"


def test_every_theorem_applies_somewhere_and_refuses_somewhere() -> None:
    for theorem in ALL:
        verdicts = [_epsilon(theorem, run) for run in _runs()]
        assert any(verdict is not None for verdict in verdicts)
        if theorem.name not in ("composition", "kaissis-2021"):  # composition needs nothing but a bounded gradient, which a Run cannot lack
            assert any(verdict is None for verdict in verdicts)


@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_more_noise_never_raises_epsilon(theorem: Theorem, run: lethe.Run) -> None:
    epsilons = [theorem.bound(run.with_noise_scaled(factor)).guarantee.epsilon(DELTA) for factor in (0.5, 1.0, 1.01, 3.0)]
    assert all(more <= less * (1 + 1e-9) for less, more in itertools.pairwise(epsilons))


@pytest.mark.parametrize(("theorem", "run"), OUR_CASES, ids=_name)
def test_guarantees_scale_with_the_noise(theorem: Theorem, run: lethe.Run) -> None:
    """What `plan` rests on: the guarantee of c times the noise is the guarantee scaled by c."""
    for factor in (0.7, 2.5):
        scaled = noise_scaled(theorem.bound(run).guarantee, factor).epsilon(DELTA)
        assert scaled == pytest.approx(theorem.bound(run.with_noise_scaled(factor)).guarantee.epsilon(DELTA), rel=1e-6)


@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_a_json_round_trip_changes_no_bit(theorem: Theorem, run: lethe.Run) -> None:
    again = lethe.Run.from_document(run.to_document())
    assert _epsilon(theorem, again) == _epsilon(theorem, run)


@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_delta_and_epsilon_agree(theorem: Theorem, run: lethe.Run) -> None:
    guarantee = theorem.bound(run).guarantee
    epsilon = guarantee.epsilon(DELTA)
    if epsilon == math.inf:  # composition of a run with noise at pass ends only
        assert guarantee.delta(1e300) > DELTA
        return
    assert guarantee.delta(epsilon) <= DELTA * (1 + 1e-9)
    assert guarantee.delta(epsilon * 0.99) > DELTA


@pytest.mark.parametrize(("theorem", "run"), CASES, ids=_name)
def test_zeroing_out_is_never_dearer_than_replacing(theorem: Theorem, run: lethe.Run) -> None:
    replaced, zeroed = (_epsilon(theorem, run.replace(neighbours=relation)) for relation in ("replace_one", "zero_out"))
    assert replaced is not None
    assert zeroed is not None
    assert zeroed <= replaced * (1 + 1e-9)


@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_it_cites_its_source_and_says_what_it_proves(theorem: Theorem) -> None:
    assert theorem.citations
    assert all(citation.key and len(citation.text) > 20 for citation in theorem.citations)
    assert theorem.statement.endswith(".")


@pytest.mark.parametrize(
    ("name", "changes", "hypothesis"),
    [
        ("optimal-shift", {"release": "all"}, "release"),
        ("optimal-shift", {"loss": {"kind": "unknown"}, "clip_norm": 1.0}, "smoothness"),
        ("sampled-gaussian", {"batches": {"design": "cyclic", "size": 10}}, "random batches"),
        ("sampled-gaussian", {"batches": {"design": "balls_in_bins", "size": 10}}, "random batches"),
    ],
)
def test_breaking_one_hypothesis_is_refused_by_name(name: str, changes: dict[str, object], hypothesis: str) -> None:
    theorem = next(theorem for theorem in ALL if theorem.name == name)
    failure = first_failure(theorem.examine(make_run(**changes)))
    assert failure is not None
    assert failure.name == hypothesis
    with pytest.raises(HypothesisError, match=name) as caught:
        theorem.bound(make_run(**changes))
    assert "Do:" in str(caught.value)


@pytest.mark.parametrize("release", ["last", "all"])
def test_linear_losses_unprojected_full_batch_are_exactly_composition(release: str) -> None:
    """theory.md section 7: convex and smooth, yet no bound may beat sqrt(T) s / tau."""
    run = make_run(batches={"design": "full"}, loss={"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}, release=release)
    exact = lethe.GDP(math.sqrt(5) * 2 / 5.0).epsilon(DELTA)
    for theorem in ALL:
        epsilon = _epsilon(theorem, run)
        assert epsilon is None or epsilon >= exact * (1 - 1e-12)


@pytest.mark.parametrize("design", [design for design in DESIGNS if design not in ("poisson", "without_replacement")])
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_never_below_the_exact_last_iterate_of_a_linear_run(design: str, relation: str) -> None:
    """Losses <g, x> with all differences in one direction: whatever the secret slot, a record is touched once a pass, so the last
    iterate is exactly Gaussian: mean difference (touches) s, variance T tau^2."""
    linear = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
    run = make_run(batches=batches(design, 10), loss=linear, neighbours=relation, steps=20, noise_multiplier=4.0)
    touches = 20 if design == "full" else 2
    exact = touches * run.sensitivities[0] / math.sqrt(float(np.sum(run.noise_stds**2)))
    assert lethe.certify(run, DELTA).epsilon >= lethe.GDP(exact).epsilon(DELTA) * (1 - 1e-12)


def test_never_below_the_exact_last_iterate_of_a_poisson_run() -> None:
    """As above with Poisson batches and zero out: the touches are binomial, and the last iterate of the two worlds is
    sum_k Bin(T, q)(k) N(k s, T tau^2) against N(0, T tau^2); its hockey-stick divergence by numerical integration."""
    linear = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
    run = make_run(batches=batches("poisson", 10), loss=linear, neighbours="zero_out", steps=20, noise_multiplier=2.0)
    touch = run.sensitivities[0] / math.sqrt(float(np.sum(run.noise_stds**2)))
    grid = np.linspace(-12, 12 + 20 * touch, 200_001)
    with_record = sum(stats.binom.pmf(k, 20, 0.1) * stats.norm.pdf(grid - k * touch) for k in range(21))
    without = stats.norm.pdf(grid)
    certificate = lethe.certify(run, DELTA)
    for epsilon in (0.1, 0.5, certificate.epsilon):
        for first, second in ((with_record, without), (without, with_record)):
            exact = float(np.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0), grid))
            assert certificate.delta_at(epsilon) >= exact - 1e-10  # the grid's own error
