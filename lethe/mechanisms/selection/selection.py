"""Choosing hyper-parameters privately: train a secret random number of times, release the best result and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from lethe.calculus.any_guarantee.composition import together
from lethe.calculus.domains import as_number, outside
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.documents.synonyms import in_other_words
from lethe.errors import InputError
from lethe.mechanisms.selection.privacy import selection_guarantee
from lethe.mechanisms.selection.repetitions import Repetitions
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
    """The release of a private selection, which does not tell how often it tried.

    Args:
        candidate: the one whose run scored best; None if the number of tries came out 0, which only Poisson repetitions can.
        result: of that run.
        score: of that run.
        statement: what candidate, result and score cost together.
    """

    candidate: Candidate | None
    result: Result | None
    score: float | None
    statement: Statement


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

    Formal guarantee: see `selection_privacy`. It covers the candidate, the result and the score that are returned. It does not cover
    the number of tries, the time they took, other results, or an exception raised on the way: keep them secret. A score that is not a
    number counts as minus infinity; among equal scores the first stays, which is a random one.

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
    Raises:
        InputError: an argument is outside its range, or a score is neither a number nor nan.
    Reference: Papernot & Steinke 2022, arXiv:2110.03620; Liu & Talwar 2019, arXiv:1811.07971.
    """
    if len(candidates) == 0:
        raise InputError("candidates: the list is empty; at least one is needed.", source="the argument candidates")
    statement = _statement(repetitions, train_guarantee, score_guarantee, neighbours, delta, len(candidates), seeded=generator is not None)
    source = noise_generator(generator)
    best: tuple[Candidate, Result, float] | None = None
    for _ in range(repetitions.draw(source)):
        candidate = candidates[int(source.integers(len(candidates)))]
        result = train(candidate)
        reached = _comparable(score(result))
        if best is None or reached > best[2]:
            best = candidate, result, reached
    if best is None:
        return PrivateChoice(candidate=None, result=None, score=None, statement=statement)
    return PrivateChoice(candidate=best[0], result=best[1], score=best[2], statement=statement)


def _statement(
    repetitions: Repetitions,
    train_guarantee: Guarantee,
    score_guarantee: Guarantee | Literal["public"],
    neighbours: Neighbours,
    delta: float | None,
    count: int,
    *,
    seeded: bool,
) -> Statement:
    for name, part in (("train_guarantee", train_guarantee), ("score_guarantee", score_guarantee)):
        if not isinstance(part, Guarantee) and not (name == "score_guarantee" and part == "public"):
            raise outside(name, part, "a guarantee of lethe.calculus" + (', or "public"' if name == "score_guarantee" else ""))
    if isinstance(score_guarantee, Guarantee):
        base = together([(train_guarantee, 1), (score_guarantee, 1)])
        scored = holds("score", f"sees private data, and is part of every try: {score_guarantee.describe()}", evidence="declared")
    else:
        base = train_guarantee
        scored = holds("score", "sees what training released and public data only", evidence="declared")
    return Statement(
        name=f"the best of a random number of tries among {count} candidates",
        guarantee=selection_guarantee(base, repetitions, delta=delta),
        neighbours=neighbours,
        findings=(
            holds("one try", f"{base.describe()}, for every candidate", evidence="declared"),
            scored,
            holds(
                "number of tries", f"random and secret, {repetitions.mean:.6g} on average, drawn apart from the data", evidence="enforced"
            ),
        ),
        citations=_CITATIONS,
        seeded=seeded,
        derivation=derivation("private selection", one_try=base.to_dict(), repetitions=repetitions.to_dict(), delta=delta),
    )


def _comparable(score: object) -> float:
    if isinstance(score, float | np.floating) and math.isnan(score):
        return -math.inf
    return as_number("score", score, "a number")
