r"""Private selection: run a private mechanism a random number of times, release only the best output, and what that costs.

`PrivateSearch` calls `choose` with its try, and `selection_guarantee` for its price; `lethe.accounting.derivations` recomputes it.
$\delta_Q$ is the privacy profile of Q, $\epsilon_Q(\lambda)$ its Rényi divergence of order $\lambda$; K is the number of tries with
parameters $\gamma$, $\eta$.

Q is the base mechanism (training, and scoring if that sees private data), its outputs totally ordered by score, ties broken at random; A is
the selected output. For the truncated negative binomial let R be the smallest number with
$(1-\gamma)\,\delta_Q(\log R) \le \gamma(R - 1)$, and $L = (1+\eta)\log R$. Then

$$\epsilon_A(\lambda) \le \epsilon_Q(\lambda) + L + \frac{\log E[K]}{\lambda-1},\qquad
  \delta_A(\epsilon) \le E[K]\,\delta_Q(\epsilon - L),$$

never more than Theorem 2 of Papernot and Steinke. For Poisson repetitions, $\hat\delta = \delta_Q(\log\frac{\lambda}{\lambda-1})$ and
$L = \mu\,\delta_Q(0)$,

$$\epsilon_A(\lambda) \le \frac{1}{\lambda-1}\log\left(e^{-\mu} + \mu e^{(\lambda-1)(\epsilon_Q(\lambda) + \mu\hat\delta)}\right),\qquad
  \delta_A(\epsilon) \le \mu\,\delta_Q(\epsilon - L);$$

Theorem 6 of the same paper has no $e^{-\mu}$, and can fall below 0 without it. An $(\epsilon, \delta)$-DP base is $\epsilon$-DP but for an
event of probability $\delta$ a try, and K given that it never happens has the thinned law. Proofs: docs/theory.md, section 16.

Reference: Papernot & Steinke 2022, arXiv:2110.03620, Lemma 7 and Theorems 2 and 6; Liu & Talwar 2019, arXiv:1811.07971; Koskela, Redberg,
Wang 2024, arXiv:2402.06701 (profiles); Kairouz, Oh, Viswanath 2015, arXiv:1311.0776, Theorem 3.3 and its proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from lethe.calculus.any_guarantee import together
from lethe.calculus.composition import renyi_curve
from lethe.calculus.crossing import crossing
from lethe.calculus.domains import FloatArray, as_number, outside, require_delta
from lethe.calculus.guarantees import ApproxDP, Guarantee, RDPCurve, Tightest, WithSlack
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down, round_up
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.mechanisms.repetitions import PoissonRepetitions, Repetitions, draw_tries
from lethe.run.run import Neighbours

Candidate = TypeVar("Candidate")
Result = TypeVar("Result")

_CITATIONS = (
    Citation(key="papernot-2022", text="Papernot & Steinke 2022, Hyperparameter tuning with Rényi differential privacy, arXiv:2110.03620"),
    Citation(key="liu-2019", text="Liu & Talwar 2019, Private selection from private candidates, arXiv:1811.07971"),
    Citation(key="koskela-2024", text="Koskela, Redberg, Wang 2024, Privacy profiles for private selection, arXiv:2402.06701"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateChoice(Generic[Candidate, Result]):
    """The release of a private selection, which does not tell how often it tried: the best run, and what all of it costs together.

    There is none if the number of tries came out 0, which only Poisson repetitions can.
    """

    candidate: Candidate | None
    result: Result | None
    score: float | None
    statement: Statement


def log_gain(base: Guarantee, repetitions: Repetitions) -> float:
    r"""$L$, rounded up: by how much the choice can raise a privacy loss, the largest $\log f'(q) - \log f'(q')$."""
    if isinstance(repetitions, PoissonRepetitions):
        return round_up(repetitions.rate * _profile(base, 0.0), 1e-15)
    gamma = repetitions.gamma

    def gap(level: float) -> float:
        return (1.0 - gamma) * (1.0 + 1e-13) * _profile(base, level) - gamma * math.expm1(level)

    bound = min(-math.log(gamma), base.epsilon(0.0))  # delta <= 1, and 0 from epsilon(0) on
    curve = renyi_curve({base: 1})
    if curve is not None:
        orders, values = np.array(curve.orders), np.array(curve.values)
        bound = min(bound, float(((1.0 - 1.0 / orders) * values - math.log(gamma) / orders).min()))
    solved = bound if gap(0.0) <= 0.0 or gap(bound) > 0.0 else crossing(gap, 0.0, bound, resolution=1e-13 * max(bound, 1e-3))
    return round_up((1.0 + repetitions.eta) * solved, 1e-12)


def _profile(base: Guarantee, level: float) -> float:
    r"""$\delta_Q$; where Q is pure, that of randomised response, $\frac{e^\epsilon - e^{\epsilon'}}{1 + e^\epsilon}$, if it is smaller."""
    delta, pure = base.delta(level), base.epsilon(0.0)
    if pure == math.inf:
        return delta
    return min(delta, round_up(max(-math.expm1(level - pure), 0.0) / (1.0 + math.exp(-pure)), 1e-15))


def selection_curve(base: Guarantee, repetitions: Repetitions) -> RDPCurve | None:
    r"""The Rényi curve of the selection; None if the base has none."""
    curve = renyi_curve({base: 1})
    if curve is None:
        return None
    order = np.argsort(curve.orders)
    orders, values = np.array(curve.orders)[order], np.array(curve.values)[order]
    excess = orders - 1.0
    if isinstance(repetitions, PoissonRepetitions):
        failing = np.array([_profile(base, round_down(math.log1p(1.0 / float(gap)), 1e-15)) for gap in excess])
        exponents = math.log(repetitions.rate) + excess * (values + repetitions.rate * failing)
        selected = np.logaddexp(-repetitions.rate, exponents) / excess
    else:
        selected = values + log_gain(base, repetitions) + math.log(repetitions.mean) / excess
    selected = np.maximum(selected * (1.0 + 1e-12), 0.0) + 1e-14 / excess
    # A divergence grows with its order, so each bound holds at all orders below.
    lowest: FloatArray = np.minimum.accumulate(selected[::-1])[::-1]
    return RDPCurve(tuple(orders.tolist()), tuple(lowest.tolist()))


def selection_guarantee(base: Guarantee, repetitions: Repetitions, *, delta: float | None = None) -> Guarantee:
    r"""The guarantee of a private selection: its Rényi curve, the point at $\delta = 0$ if finite, and the point at `delta` if given.

    The base is of one try of any candidate, scoring included where the score sees private data; an $(\epsilon, \delta)$ one has its own
    delta. An InputError says that nothing is known: no Rényi curve, and no `delta` or too small a one.
    """
    if not isinstance(base, Guarantee):
        raise outside("base", base, "a guarantee of lethe.calculus")
    if not isinstance(repetitions, Repetitions):
        raise outside("repetitions", repetitions, "a TruncatedNegativeBinomial or PoissonRepetitions")
    if isinstance(base, ApproxDP) and base.delta_bound > 0.0:
        if base.delta_bound == 1.0:
            return ApproxDP(0.0, 1.0)
        slack, thinned = repetitions.hit_probability(base.delta_bound), repetitions.thinned(base.delta_bound)
        inner = selection_guarantee(ApproxDP(base.epsilon_bound, 0.0), thinned)
        return Tightest((ApproxDP(inner.epsilon(0.0), slack), WithSlack(inner, slack)))
    parts: list[Guarantee] = []
    if (curve := selection_curve(base, repetitions)) is not None:
        parts.append(curve)
    for point in (0.0,) if delta is None else (0.0, require_delta(delta)):
        epsilon = round_up(base.epsilon(round_down(point / max(repetitions.mean, point), 1e-14)) + log_gain(base, repetitions), 1e-15)
        if epsilon < math.inf:
            parts.append(ApproxDP(epsilon, point))
    if not parts:
        where = "no delta is given" if delta is None else f"nothing is proved of {repetitions.mean:g} tries at delta = {delta:g}"
        raise InputError(
            f"base: {base.describe()} has no Rényi curve, and {where}.",
            source="the arguments base and delta",
            remedy="give a delta above that of the base times the mean number of tries",
        )
    return parts[0] if len(parts) == 1 else Tightest(tuple(parts))


@in_other_words
def choose(
    candidates: Sequence[Candidate],
    train: Callable[[Candidate], Result],
    score: Callable[[Result], float],
    *,
    repetitions: Repetitions,
    train_guarantee: Guarantee,
    score_guarantee: Guarantee | Literal["public"],
    neighbours: Neighbours = "replace_one",
    delta: float | None = None,
    generator: np.random.Generator | None = None,
) -> PrivateChoice[Candidate, Result]:
    """Draw K; K times draw a candidate uniformly, train it and score it; keep the best.

    The guarantee covers the candidate, the result and the score that are returned. It does not cover the number of tries, the time they
    took, other results, or an exception raised on the way: keep them secret. A score that is not a number counts as minus infinity; among
    equal scores the first stays, which is a random one.

    Args:
        candidates: at least one; a public list.
        train: candidate -> result, with fresh noise at every call, and nothing kept from call to call.
        score: result -> number, the larger the better, with fresh noise at every call if it has any.
        repetitions: the law of K.
        train_guarantee: of one call of `train`, for every candidate.
        score_guarantee: of one call of `score` where it looks at private data; "public" where it sees the result and public data only.
        neighbours: the relation that both guarantees are for.
        delta: where epsilon matters; None: the Rényi curve alone.
        generator: draws K and the candidates; for tests, and the statement is then `seeded`; None: fresh entropy.
    """
    if len(candidates) == 0:
        raise InputError("candidates: the list is empty; at least one is needed.", source="the argument candidates")
    for name, part in (("train_guarantee", train_guarantee), ("score_guarantee", score_guarantee)):
        if not isinstance(part, Guarantee) and not (name == "score_guarantee" and part == "public"):
            raise outside(name, part, "a guarantee of lethe.calculus" + (', or "public"' if name == "score_guarantee" else ""))
    base, scored = train_guarantee, "sees what training released and public data only"
    if isinstance(score_guarantee, Guarantee):
        base = together([(train_guarantee, 1), (score_guarantee, 1)])
        scored = f"sees private data, and is part of every try: {score_guarantee.describe()}"
    guarantee = selection_guarantee(base, repetitions, delta=delta)
    average = f"random and secret, {repetitions.mean:.6g} on average, drawn apart from the data"
    statement = Statement(
        name=f"the best of a random number of tries among {len(candidates)} candidates",
        guarantee=guarantee,
        neighbours=neighbours,
        findings=(
            holds("one try", f"{base.describe()}, for every candidate", evidence="declared"),
            holds("score", scored, evidence="declared"),
            holds("number of tries", average, evidence="enforced"),
        ),
        citations=_CITATIONS,
        seeded=generator is not None,
        derivation=derivation("private selection", one_try=base.to_dict(), repetitions=repetitions.to_dict(), delta=delta),
    )
    source = noise_generator(generator)
    best: tuple[Candidate, Result, float] | None = None
    for _ in range(draw_tries(repetitions, source)):
        candidate = candidates[int(source.integers(len(candidates)))]
        result = train(candidate)
        scored_at = score(result)
        nan = isinstance(scored_at, float | np.floating) and math.isnan(scored_at)
        reached = -math.inf if nan else as_number("score", scored_at, "a number")
        if best is None or reached > best[2]:
            best = candidate, result, reached
    if best is None:
        return PrivateChoice(candidate=None, result=None, score=None, statement=statement)
    return PrivateChoice(candidate=best[0], result=best[1], score=best[2], statement=statement)
