r"""Membership inference by shadow models: who is trained on what, and what the attack says of the audited model's candidates.

Called by users who have models of their own, not by `audit`: shadow models are trained alike on other draws of records, and show the attack
how scores of members and non-members differ.

How a model is trained, and how the attack learns from the shadow models, are functions of the caller's: nothing here needs a framework.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lethe.audit.games.trainings import all_trained
from lethe.audit.statistics.counts import MOST_TRIALS, Booleans, require_array
from lethe.calculus.domains import FloatArray, require_count
from lethe.errors import InputError

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Records (`rows`, shape (m,), each once) that a model may have been trained on, and the fair coins that say which of them it was."""

    rows: Integers
    included: Booleans


ShadowTrainer = Callable[[Candidates, int], FloatArray]
"""(candidates, seed) -> logits of a model trained on the included candidates, on all of them, shape (checkpoints, m, classes)."""
MembershipAttack = Callable[[FloatArray, Integers], FloatArray]
"""(logits, labels) -> the attack's probability that each record was included, shape (checkpoints, m)."""
AttackTrainer = Callable[[FloatArray, Integers, Booleans, int], MembershipAttack]
"""(logits of shadow models, shape (checkpoints, k, classes), labels (k,), coins (k,), seed) -> the attack fitted to them."""


def draw_candidates(records: int, candidates: int, shadows: int, *, seed: int) -> tuple[Candidates, tuple[Candidates, ...]]:
    """Draw the audited model's candidates, and those of the shadow models from the other records.

    Shadow models may share records with each other, and share none with the audited model. Each record is included by its own fair coin, so
    that about half are members, and the coins can be guessed in a game that proves something.

    Args:
        records: in all, at least twice the candidates.
        candidates: m >= 2 of each model.
        shadows: how many shadow models, >= 1.
        seed: whole number >= 0, of who is drawn and of the coins; no training may use it.
    """
    size = require_count("candidates", candidates, low=2, high=MOST_TRIALS)
    count = require_count("shadows", shadows, low=1, high=10_000)
    total = require_count("records", records, low=1, high=2**53)
    if total < 2 * size:
        raise InputError(
            f"records: got {total}; {size} candidates of the audited model and {size} others for each shadow model need {2 * size}.",
            source="the argument records",
            remedy="give more records, or draw fewer candidates",
        )
    generator = np.random.default_rng(require_count("seed", seed, low=0, high=2**64))
    order = generator.permutation(total)
    pool = order[size:]

    def drawn(rows: Integers) -> Candidates:
        return Candidates(rows=rows, included=generator.random(size) < 0.5)

    return drawn(order[:size]), tuple(drawn(generator.choice(pool, size, replace=False)) for _ in range(count))


def shadow_attack(
    labels: Integers,
    target: Candidates,
    shadows: Sequence[Candidates],
    *,
    train: ShadowTrainer,
    learn: AttackTrainer,
    seeds: Sequence[int],
    finished: Callable[[], None] = lambda: None,
) -> tuple[FloatArray, FloatArray]:
    """Train the audited model and its shadows, fit the attack to the shadows, and let it judge the audited model's candidates.

    The probabilities depend on the target's coins through the trained target only, as a game in one run needs it.

    Args:
        labels: the class of every record, whole numbers from 0, shape (records,).
        target: the audited model's candidates.
        shadows: those of each shadow model, none of them the target's.
        train: trains one model. Trainings are independent, and go through joblib: in this process, or where `joblib.parallel_config` says.
        learn: fits the attack.
        seeds: of the target's training, of each shadow's, and of the attack: shadows + 2 different whole numbers.
        finished: is told of each training's end.
    Returns:
        Probabilities, shape (checkpoints, m), and the target's logits, shape (checkpoints, m, classes).
    """
    numbers = [require_count("seeds", seed, low=0, high=2**64) for seed in seeds]
    if len(set(numbers)) != len(numbers) or len(numbers) != len(shadows) + 2:
        raise InputError(
            f"seeds: got {numbers}; it needs {len(shadows) + 2} different ones: of the target, of each shadow model and of the attack.",
            source="the argument seeds",
        )
    if any(np.isin(target.rows, shadow.rows).any() for shadow in shadows):
        raise InputError(
            "shadows: one has a record that is the target's.",
            source="the argument shadows",
            remedy="draw them from other records, as `draw_candidates` does",
        )
    everybody = (target, *shadows)
    trained = all_trained(train, zip(everybody, numbers[:-1], strict=True), finished=finished)
    answers = [_logits(values, each) for values, each in zip(trained, everybody, strict=True)]
    shadow_answers = np.concatenate(answers[1:], axis=1)
    right, coins = (np.concatenate(parts) for parts in zip(*((labels[each.rows], each.included) for each in shadows), strict=True))
    score = learn(shadow_answers, right, coins, numbers[-1])
    attack_scores = require_array("what the attack returned", score(answers[0], labels[target.rows]), dimensions=2)
    if attack_scores.shape != answers[0].shape[:2]:
        raise InputError(
            f"score: the attack returned shape {attack_scores.shape}; it needs {answers[0].shape[:2]}, checkpoints by candidates."
        )
    return attack_scores, answers[0]


def _logits(values: object, candidates: Candidates) -> FloatArray:
    logits = require_array("what train returned", values, dimensions=3)
    if logits.shape[1] != candidates.rows.size:
        raise InputError(f"train: it returned shape {logits.shape}; it needs (checkpoints, {candidates.rows.size}, classes).")
    return logits
