"""Shadow models: who is drawn, that the attack sees shadow models only, and what is refused."""

from typing import Any

import numpy as np
from scipy import stats

from lethe.audit import shadow_attack
from lethe.audit.games.shadow_models import Candidates, draw_candidates

LABELS = np.arange(60) % 3


def test_shadow_models_share_nothing_with_the_audited_one() -> None:
    for seed in range(20):
        target, shadows = draw_candidates(60, 25, 4, seed=seed)
        assert len(shadows) == 4
        for each in (target, *shadows):
            assert each.rows.shape == each.included.shape == (25,)
            assert len(set(each.rows.tolist())) == 25
            assert 0 <= each.rows.min() <= each.rows.max() < 60
        assert not any(np.isin(target.rows, shadow.rows).any() for shadow in shadows)


def test_coins_are_fair_and_say_nothing_of_each_other() -> None:
    """Heads over 400 draws of 25 candidates, and agreement of neighbours; each has mean 1/2."""
    flags = np.array([draw_candidates(60, 25, 1, seed=seed)[0].included for seed in range(400)])
    assert stats.binomtest(int(flags.sum()), flags.size).pvalue > 1e-4
    assert stats.binomtest(int((flags[:, 1:] == flags[:, :-1]).sum()), flags[:, 1:].size).pvalue > 1e-4
    assert np.ptp(flags.sum(axis=1)) > 0


def _attack(**changes: object) -> tuple[np.ndarray, np.ndarray, list[tuple[Any, ...]]]:
    target, shadows = draw_candidates(60, 20, 2, seed=4)
    asked: list[tuple[Any, ...]] = []

    def train(candidates: Candidates, seed: int) -> np.ndarray:
        asked.append(("train", candidates, seed))
        logits = np.zeros((2, candidates.rows.size, 3))
        logits[:, :, 0] = candidates.rows
        logits[1, :, 1] = candidates.included
        return logits

    def learn(logits: np.ndarray, labels: np.ndarray, included: np.ndarray, seed: int):
        asked.append(("learn", logits, labels, included, seed))
        return lambda others, classes: others[:, :, 1] * 0.5 + classes * 0.1

    arguments = {"train": train, "learn": learn, "seeds": [1, 2, 3, 4], **changes}
    probabilities, logits = shadow_attack(LABELS, target, shadows, **arguments)
    return probabilities, logits, asked


def test_the_attack_learns_from_shadow_models_and_judges_the_audited_one() -> None:
    target, shadows = draw_candidates(60, 20, 2, seed=4)
    probabilities, logits, asked = _attack()
    assert [(word[1].rows.tolist(), word[2]) for word in asked[:3]] == [
        (each.rows.tolist(), seed) for each, seed in zip((target, *shadows), (1, 2, 3), strict=True)
    ]
    _, seen, labels, included, seed = asked[3]
    rows = np.concatenate([shadow.rows for shadow in shadows])
    assert np.array_equal(seen[0, :, 0], rows)
    assert np.array_equal(labels, LABELS[rows])
    assert np.array_equal(included, np.concatenate([shadow.included for shadow in shadows]))
    assert seed == 4
    assert np.array_equal(logits[0, :, 0], target.rows)
    assert np.allclose(probabilities, logits[:, :, 1] * 0.5 + LABELS[target.rows] * 0.1)
