"""Audits of any callable: what is wrong is said before anything is trained, and what is certified keeps its level."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("joblib")

from audit_truths import assert_valid
from how_many import examples

from lethe.audit import AuditConfig, Claim, Ranks
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split
from lethe.audit.trainers import FunctionTraining, audit
from lethe.errors import InputError

DATA = (np.ones((40, 1)), np.arange(40) % 2)
CLAIM = Claim(epsilon=1.0, delta=0.0, neighbours="replace_one", release="last", source="its noise")
LEVEL = 0.4


class Trainer:
    """The sum with Laplace noise: epsilon is 1, and the blank canary, a 0 for a 1, attains it. Counts its trainings."""

    def __init__(self) -> None:
        self.trained = 0

    def __call__(self, data: Any, seed: int) -> float:
        self.trained += 1
        return float(data[0].sum()) + np.random.default_rng(seed).laplace()


def rows(data: Any, seed: int) -> np.ndarray:
    """Every feature by randomised response: epsilon is 1, and all scores are one of two."""
    lies = np.random.default_rng(seed).random(len(data[0])) > np.e / (1 + np.e)
    return np.abs(data[0][:, 0] - lies)


def share(model: float, record: Any) -> float:
    return model * float(record[0][0])


def audited(**changes: Any) -> Any:
    """The audit of a trainer, with some fields of its configuration, of its game or of what trains changed."""
    fields = {"delta": 0.0, "canary": "blank", **changes}
    subject, score = fields.pop("subject", None) or Trainer(), fields.pop("score", share)
    data, claim = fields.pop("data", DATA), fields.pop("claim", CLAIM)
    kind = fields.pop("game", "two_world")
    parts = {"two_world": ("runs", "rule", "position", "workers", "score_file"), "one_run": ("canaries", "guesses")}[kind]
    game = {"kind": kind, **({"runs": 40} if kind == "two_world" else {}), **{name: fields.pop(name) for name in parts if name in fields}}
    return audit(FunctionTraining(train=subject, score=score), data, AuditConfig(game=game, **fields), claim=claim)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rule": Ranks(ranks=(41,))}, "40 OUT runs"),
        ({"rule": Split(seed=0), "runs": 3}, "four runs"),
        ({"claim": 3}, "claim"),
        ({"claim": CLAIM.model_copy(update={"neighbours": "zero_out"})}, "says nothing of this audit"),
        ({"claim": CLAIM.model_copy(update={"delta": 1e-5})}, "says nothing of this audit"),
        ({"threat": "white_box"}, "says nothing of this audit"),
        ({"game": "one_run", "canaries": 40, "claim": CLAIM.model_copy(update={"delta": 1e-5})}, "says nothing of this audit"),
        ({"canary": "least_moved"}, "trainer of Lethe's"),
        ({"canary": "mislabelled"}, "classes"),
        ({"position": 40}, "position"),
        ({"game": "one_run", "canaries": 41}, "canaries"),
        ({"game": "one_run", "canaries": 40, "guesses": [(41, 0)]}, "guesses"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(change: dict[str, Any], word: str) -> None:
    trainer = Trainer()
    with pytest.raises(InputError, match=word):
        audited(**{"subject": trainer, **change})
    assert trainer.trained == 0


def test_a_trainer_that_ignores_its_seed_gives_no_bound() -> None:
    with pytest.raises(InputError, match="draws its own noise"):
        audited(subject=lambda data, seed: float(data[0].sum()))


def test_scores_are_judged_as_declared(tmp_path: Any) -> None:
    """Another rule, level or delta once the scores are there is one that was chosen by them."""
    file = tmp_path / "scores.jsonl"
    first = audited(score_file=file)
    trainer = Trainer()
    assert audited(subject=trainer, score_file=file) == first
    assert trainer.trained == 0
    for change in ({"level": 0.4}, {"delta": 1e-5}, {"rule": FixedThreshold(threshold=0.5)}):
        with pytest.raises(InputError, match="declared"):
            audited(score_file=file, **change)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", [None, FixedThreshold(threshold=-39.5), Split(seed=0), MultiSplit(seed=0, splits=3)])
def test_certified_bounds_of_two_worlds_keep_their_level(rule: Any) -> None:
    pages = [audited(rule=rule, seed=seed, level=LEVEL, conditional=False) for seed in range(examples(120))]
    assert all(result.kind == "certified" for page in pages for result in page.audits)
    assert_valid(np.array([page.audits[0].epsilon for page in pages]), 1.0, level=LEVEL)
    assert all((page.verdict == "refuted") == (page.audits[0].epsilon > 1.0) for page in pages)


@pytest.mark.parametrize("guesses", [None, [(10, 10)], [(0, 10)]])
def test_certified_bounds_of_one_run_keep_their_level(guesses: Any) -> None:
    """The canaries are zeros for ones; whatever the model holds of record i is the score of canary i."""
    places = np.column_stack([np.ones(40), np.arange(40)])
    fields: dict[str, Any] = {"subject": rows, "data": (places, DATA[1]), "game": "one_run", "canaries": 40, "guesses": guesses}

    def score(model: np.ndarray, record: Any) -> float:
        value, place = record[0]
        return float(value * model[int(place)])

    pages = [audited(**fields, score=score, seed=seed, level=LEVEL, conditional=False) for seed in range(examples(150))]
    assert_valid(np.array([page.audits[0].epsilon for page in pages]), 1.0, level=LEVEL)
