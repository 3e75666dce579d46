"""Private selection: laws of the number of tries, exact laws of the best one in both directions, and the choice itself."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from exact_selection import best_of, hockey_stick, renyi
from how_many import by_night, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import norm

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, RDPCurve, Tightest, WithSlack
from lethe.errors import InputError
from lethe.mechanisms.repetitions import PoissonRepetitions, TruncatedNegativeBinomial, draw_tries
from lethe.mechanisms.selection import choose, log_gain, selection_curve, selection_guarantee

GEOMETRIC = TruncatedNegativeBinomial(eta=1.0, gamma=0.1)
LAWS = (
    GEOMETRIC,
    TruncatedNegativeBinomial(eta=0.0, gamma=0.02),
    TruncatedNegativeBinomial(eta=-0.5, gamma=0.02),
    TruncatedNegativeBinomial(eta=2.5, gamma=0.3),
    PoissonRepetitions(rate=5.0),
    PoissonRepetitions(rate=0.2),
)


def random_pure_pair(generator, epsilon, outputs):
    """Two laws whose ratio stays within e^epsilon either way."""
    q = generator.dirichlet(np.full(outputs, 0.3)) + 1e-9
    p = q * np.exp(epsilon * generator.integers(0, 2, outputs))
    p, q = p / p.sum(), q / q.sum()
    return p, q


def gaussian_pair(mu, *, reverse):
    """N(0, 1) and N(mu, 1), told apart by cells: mu-GDP, ordered by the value or against it."""
    edges = np.concatenate([[-np.inf], np.linspace(-6.0, 6.0 + mu, 400), [np.inf]])
    p, q = (np.where(at[1:] > 0.0, -np.diff(norm.sf(at)), np.diff(norm.cdf(at))) for at in (edges, edges - mu))
    return (p[::-1], q[::-1]) if reverse else (p, q)


def check(one, other, base, repetitions, deltas=()):
    """Whatever is stated of the selection holds for the exact laws, in both directions."""
    a, b = best_of(one, repetitions), best_of(other, repetitions)
    curve = selection_curve(base, repetitions)
    points = [(selection_guarantee(base, repetitions, delta=delta).epsilon(delta), delta) for delta in deltas]
    for p, q in ((a, b), (b, a)):
        for order, value in zip(curve.orders, curve.values, strict=True) if curve is not None else ():
            if order < 60.0:
                assert renyi(p, q, order) <= value + 1e-9
        for epsilon, delta in points:
            assert hockey_stick(p, q, epsilon) <= delta + 1e-12


@pytest.mark.sampled(4)
@pytest.mark.parametrize("repetitions", LAWS, ids=repr)
@pytest.mark.parametrize("mu", [0.1, 1.0])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_gaussian_base(repetitions, mu, reverse):
    """By its profile, and by what is known of it as a concentrated one and at some orders."""
    pair, orders = gaussian_pair(mu, reverse=reverse), tuple(1.0 + np.geomspace(0.1, 100.0, 40))
    check(*pair, GDP(mu), repetitions, deltas=(1e-2, 1e-4, 1e-6))
    check(*pair, ZCDP(mu**2 / 2), repetitions, deltas=(1e-3, 1e-6))
    check(*pair, RDPCurve(orders, tuple(mu**2 / 2 * order for order in orders)), repetitions, deltas=(1e-3,))


@pytest.mark.parametrize("repetitions", LAWS, ids=repr)
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.01, 3.0), outputs=st.integers(2, 5))
def test_a_pure_base(repetitions, seed, epsilon, outputs):
    one, other = random_pure_pair(np.random.default_rng(seed), epsilon, outputs)
    if max(np.abs(np.log(one / other))) > epsilon:
        epsilon = float(max(np.abs(np.log(one / other)))) * (1.0 + 1e-12)
    stated = selection_guarantee(ApproxDP(epsilon, 0.0), repetitions).epsilon(0.0)
    a, b = best_of(one, repetitions), best_of(other, repetitions)
    assert np.abs(np.log(a[a > 0.0] / b[a > 0.0])).max() <= stated + 1e-9
    assert ((a > 0.0) == (b > 0.0)).all()
    curve = selection_curve(ApproxDP(epsilon, 0.0), repetitions)
    for order, value in list(zip(curve.orders, curve.values, strict=True))[::25]:
        if order < 60.0:
            assert max(renyi(a, b, order), renyi(b, a, order)) <= value + 1e-9


def three_outputs(epsilon):
    """Bad, good, best: the best is rare, and what is not bad is as unlike as e^epsilon allows."""
    for rare, share in itertools.product([1e-9, 1e-3], np.array([1e-6, 1e-3, 1.0]) * (1.0 - 1e-6) / (1.0 + math.exp(epsilon))):
        p = np.array([0.0, share * math.exp(epsilon), rare])
        q = np.array([0.0, share, rare * math.exp(epsilon)])
        p[0], q[0] = 1.0 - p.sum(), 1.0 - q.sum()
        if min(p[0], q[0]) > 0.0 and abs(math.log(p[0] / q[0])) <= epsilon:
            yield p, q


@pytest.mark.parametrize("repetitions", [LAWS[0], LAWS[1], LAWS[3], TruncatedNegativeBinomial(eta=1.0, gamma=1e-2)], ids=repr)
def test_the_pure_point_is_nearly_reached(repetitions):
    """One try costs epsilon, the choice (1 + eta) log R: a base of three outputs reaches that to 0.1 %."""
    stated = selection_guarantee(ApproxDP(0.5, 0.0), repetitions).epsilon(0.0)
    reached = 0.0
    counts = [count for count in range(3000) if repetitions.probability(count) > 0.0]
    law = np.array([repetitions.probability(count) for count in counts])
    for one, other in three_outputs(0.5):
        slopes = [float((law * counts * pair[0] ** (np.array(counts) - 1.0)).sum()) for pair in (one, other)]
        reached = max(reached, abs(math.log(slopes[1] / slopes[0])))
    assert 0.999 * (stated - 0.5) <= reached <= (stated - 0.5) * (1.0 + 1e-9)


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("gamma", [0.5, 0.1, 1e-3])
def test_never_looser_than_papernot_and_steinke(eta, gamma):
    repetitions = TruncatedNegativeBinomial(eta=eta, gamma=gamma)
    for base, renyi_of in ((GDP(0.3), lambda order: 0.045 * order), (ZCDP(0.5), lambda order: 0.5 * order)):
        curve = selection_curve(base, repetitions)
        theirs = min(
            (1.0 + eta) * ((1.0 - 1.0 / hat) * renyi_of(hat) + math.log(1.0 / gamma) / hat) for hat in 1.0 + np.geomspace(0.01, 1e5, 300)
        )
        for order, value in zip(curve.orders, curve.values, strict=True):
            theorem = renyi_of(order) + theirs + math.log(repetitions.mean) / (order - 1.0)
            assert value <= theorem * (1.0 + 1e-9)
    assert selection_guarantee(ApproxDP(0.3, 0.0), repetitions).epsilon(0.0) <= (2.0 + eta) * 0.3 * (1.0 + 1e-9)


@pytest.mark.parametrize("rate", [0.2, 5.0, 40.0])
def test_the_curve_of_poisson_tries_is_the_stated_formula(rate: float) -> None:
    r"""$\frac1{\alpha - 1}\log(e^{-r} + r\,e^{(\alpha - 1)(\alpha\mu^2/2 + r\delta)})$ of a Gaussian try."""
    mu = 0.5
    curve = selection_curve(GDP(mu), PoissonRepetitions(rate=rate))
    assert curve is not None
    orders = np.array(curve.orders)
    excess = orders - 1.0
    level = np.log1p(1.0 / excess)
    delta = norm.cdf(mu / 2.0 - level / mu) - np.exp(level) * norm.cdf(-mu / 2.0 - level / mu)
    formula = np.logaddexp(-rate, np.log(rate) + excess * (0.5 * orders * mu**2 + rate * delta)) / excess
    lowest = np.minimum.accumulate(formula[::-1])[::-1]  # a divergence grows with its order
    assert np.array(curve.values) == pytest.approx(lowest, rel=1e-9)


# --- an (epsilon, delta) base ---


def failing_pair(epsilon, delta):
    """The leaky randomised response: with probability delta the best output tells which data set it was."""
    share = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    one = np.array([(1 - delta) * share, (1 - delta) * (1 - share), delta, 0.0])
    other = np.array([(1 - delta) * (1 - share), (1 - delta) * share, 0.0, delta])
    return one, other


@pytest.mark.sampled(3)
@pytest.mark.parametrize("repetitions", LAWS, ids=repr)
@pytest.mark.parametrize("delta", [1e-4, 1e-2, 0.3])
def test_a_failing_base(repetitions, delta):
    one, other = failing_pair(0.4, delta)
    stated = selection_guarantee(ApproxDP(0.4, delta), repetitions)
    slack = repetitions.hit_probability(delta)
    assert stated.epsilon(slack) == selection_guarantee(ApproxDP(0.4, 0.0), repetitions.thinned(delta)).epsilon(0.0)
    a, b = best_of(one, repetitions), best_of(other, repetitions)
    for epsilon in (*np.linspace(0.0, 2.0, 9), stated.epsilon(slack)):
        assert max(hockey_stick(a, b, epsilon), hockey_stick(b, a, epsilon)) <= stated.delta(epsilon) + 1e-12
    assert hockey_stick(a, b, 10.0) == pytest.approx(slack, rel=1e-6)  # delta is exact: it grows with the number of tries
    assert slack > 0.9 * delta * min(repetitions.mean, 1.0)
    assert slack <= delta * repetitions.mean * (1.0 + 1e-12)


@pytest.mark.parametrize("repetitions", LAWS, ids=repr)
def test_a_profile_with_a_failure(repetitions):
    """The same pair, known by its profile alone: a delta is paid for at every try."""
    pair, base = failing_pair(0.4, 1e-3), WithSlack(ApproxDP(0.4, 0.0), 1e-3)
    check(*pair, base, repetitions, deltas=(1.001e-3 * max(repetitions.mean, 1.0), 0.1))
    if repetitions.mean > 1.0:
        assert hockey_stick(*(best_of(one, repetitions) for one in pair), 50.0) > 1.1e-3
        with pytest.raises(InputError):
            selection_guarantee(base, repetitions, delta=1.1e-3)


def test_a_rare_telling_output_reaches_the_mean_in_the_curve():
    """A rare output with a large ratio: the choice makes it E[K] times as frequent, which log E[K] / (order - 1) states."""
    other = np.array([1.0 - 1e-8, 1e-8])
    one = np.array([1.0 - 1e-8 * math.exp(6.0), 1e-8 * math.exp(6.0)])
    orders = tuple(order for order in 1.0 + np.geomspace(0.01, 1e5, 300) if order < 60.0)
    curve = RDPCurve(orders, tuple(max(renyi(one, other, order), renyi(other, one, order)) * (1.0 + 1e-12) for order in orders))
    base = Tightest((curve, ApproxDP(0.0, 1e-8 * math.exp(6.0))))
    check(one, other, base, GEOMETRIC)
    a, b = best_of(one, GEOMETRIC), best_of(other, GEOMETRIC)
    stated = selection_curve(base, GEOMETRIC)
    known = [(order, value) for order, value in zip(stated.orders, stated.values, strict=True) if 5.0 < order < 50.0]
    assert min(value / renyi(a, b, order) for order, value in known) < 1.0001


def test_a_certain_failure_and_a_base_without_a_curve():
    assert selection_guarantee(ApproxDP(0.4, 1.0), GEOMETRIC).delta(3.0) == 1.0
    base = WithSlack(GDP(0.3), 1e-9)
    with pytest.raises(InputError):
        selection_guarantee(base, GEOMETRIC)
    exact = selection_guarantee(GDP(0.3), GEOMETRIC, delta=1e-5)
    assert exact.epsilon(1e-5) <= selection_guarantee(base, GEOMETRIC, delta=1e-5).epsilon(1e-5) < math.inf


@pytest.mark.parametrize("gamma", [1e-3, 0.1, 0.7])
@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_gain_is_the_largest_over_all_tests(gamma, mu):
    points = np.linspace(-9.0, 9.0, 200_001)
    one, other = gamma + (1.0 - gamma) * norm.sf(points), gamma + (1.0 - gamma) * norm.sf(points - mu)
    largest = 2.0 * float(np.log(other / one).max())
    repetitions = TruncatedNegativeBinomial(eta=1.0, gamma=gamma)
    assert largest <= log_gain(GDP(mu), repetitions) <= largest * (1.0 + 1e-6)
    assert log_gain(GDP(mu), PoissonRepetitions(rate=4.0)) == pytest.approx(4.0 * (2.0 * norm.cdf(mu / 2.0) - 1.0), rel=1e-9)


# --- the number of tries ---

TRIES = (
    *(TruncatedNegativeBinomial(eta=eta, gamma=gamma) for eta in (-0.9, -0.5, 0.0, 1e-9, 1.0, 3.5) for gamma in (0.9, 0.2, 0.03)),
    PoissonRepetitions(rate=0.2),
    PoissonRepetitions(rate=12.0),
)
COUNTS = np.arange(4000)


def weights(law):
    return np.array([law.probability(int(count)) for count in COUNTS])


@pytest.mark.parametrize("law", TRIES, ids=repr)
def test_the_law_of_the_number_of_tries(law):
    """Its sum, its mean, the chance of a hit, the law of those without one, and what is drawn."""
    law_of_counts = weights(law)
    assert law_of_counts.sum() == pytest.approx(1.0, rel=1e-9)
    assert law_of_counts @ COUNTS == pytest.approx(law.mean, rel=1e-9)
    for delta in (1e-6, 0.01, 0.7):
        survived = law_of_counts * (1.0 - delta) ** COUNTS
        hit = law.hit_probability(delta)
        assert hit >= law_of_counts @ -np.expm1(COUNTS * np.log1p(-delta)) * (1.0 - 1e-9)
        assert hit == pytest.approx(1.0 - survived.sum(), rel=1e-6, abs=1e-11)
        assert weights(law.thinned(delta))[:500] == pytest.approx((survived / survived.sum())[:500], abs=1e-9)
    generator = np.random.default_rng(0)
    draws = np.array([draw_tries(law, generator) for _ in range(2000)])
    for most in (0, 1, 2, 5, 20):
        assert np.mean(draws <= most) == pytest.approx(law_of_counts[: most + 1].sum(), abs=5.0 * 0.5 / math.sqrt(2000))


def test_known_members():
    assert weights(TruncatedNegativeBinomial(eta=1.0, gamma=0.2)) == pytest.approx(stats.geom.pmf(COUNTS, 0.2), abs=1e-12)
    assert weights(TruncatedNegativeBinomial(eta=0.0, gamma=0.2))[1:] == pytest.approx(stats.logser.pmf(COUNTS[1:], 0.8), abs=1e-12)
    assert weights(PoissonRepetitions(rate=3.0)) == pytest.approx(stats.poisson.pmf(COUNTS, 3.0), abs=1e-12)


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("mean", [1.5, 10.0, 1000.0])
def test_a_law_of_a_given_mean(eta, mean):
    assert TruncatedNegativeBinomial.of_mean(mean, eta=eta).mean == pytest.approx(mean, rel=1e-9)


# --- the choice itself ---


def pick(**changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "candidates": ("a", "b", "c"),
        "train": lambda name: name * 2,
        "score": lambda result: {"aa": 1, "bb": 3, "cc": 2}[result],
        "repetitions": TruncatedNegativeBinomial(eta=1.0, gamma=0.05),
        "train_guarantee": GDP(0.3),
        "score_guarantee": "public",
        "generator": np.random.default_rng(0),
    }
    return choose(**arguments | changes)


def test_the_best_candidate_is_kept_and_how_often_it_tried_is_not():
    chosen = pick()
    assert (chosen.candidate, chosen.result, chosen.score) == ("b", "bb", 3.0)
    assert set(chosen.__dataclass_fields__) == {"candidate", "result", "score", "statement"}
    assert chosen.statement.planned == selection_guarantee(GDP(0.3), TruncatedNegativeBinomial(eta=1.0, gamma=0.05))
    assert pick(score=lambda result: {"aa": math.nan, "bb": -1e300, "cc": math.nan}[result]).candidate == "b"
    assert pick(score=lambda _: math.nan).score == -math.inf
    empty = pick(repetitions=PoissonRepetitions(rate=1e-12))
    assert (empty.candidate, empty.result, empty.score) == (None, None, None)
    assert empty.statement.planned.epsilon(1e-5) < math.inf
    assert len({tuple(pick(generator=None, score=lambda _: 0.0).candidate for _ in range(12)) for _ in range(3)}) == 3


def test_a_private_score_is_part_of_every_try():
    """Of two Gaussian releases by one record: 0.3 and 0.4 are 0.5."""
    stated = pick(score_guarantee=GDP(0.4), delta=1e-5).statement.planned.epsilon(1e-5)
    assert stated == pytest.approx(pick(train_guarantee=GDP(0.5), delta=1e-5).statement.planned.epsilon(1e-5), rel=1e-9)


def test_the_choice_follows_its_exact_law():
    """Candidates drawn uniformly, ties among equal scores and the number of tries included."""
    repetitions = TruncatedNegativeBinomial(eta=0.0, gamma=0.2)
    generator = np.random.default_rng(11)
    times = 300 if by_night() else 100
    rank = {"a": 0.0, "b": 1.0, "c": 2.0}
    drawn = [pick(repetitions=repetitions, generator=generator, score=lambda result: rank[result[0]]).candidate for _ in range(times)]
    shares = np.array([drawn.count(name) for name in "abc"]) / times
    assert shares == pytest.approx(best_of(np.full(3, 1 / 3), repetitions)[:3], abs=5.0 * 0.5 / math.sqrt(times))
    tied = [pick(repetitions=repetitions, generator=generator, score=lambda _: 1.0).candidate for _ in range(times)]
    assert [tied.count(name) / times for name in "abc"] == pytest.approx([1 / 3] * 3, abs=5.0 * 0.5 / math.sqrt(times))
