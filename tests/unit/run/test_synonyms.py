"""Other libraries' words: the American spellings are taken everywhere, the rest is refused with the name that is meant."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers import make_run
from sklearn.base import clone

import lethe
from lethe.documents.strict import to_json
from lethe.errors.names import SPELLINGS, SYNONYMS, did_you_mean, in_other_words
from lethe.mechanisms.moments import moment_sensitivity

SAID: dict[str, Any] = {
    "records": 1000,
    "batches": lethe.batches.Cyclic(20),
    "passes": 1,
    "step_size": 0.5,
    "clip_norm": 1.0,
    "release": "last",
}


TRAIN = pytest.importorskip("lethe.train")
ESTIMATOR = pytest.importorskip("lethe.estimators").LogisticRegression
UNKNOWN = "takes no such argument; did you mean"
MEANT = {
    "epochs": "passes", "num_steps": "steps", "lr": "step_size", "max_grad_norm": "clip_norm", "sigma": "noise_multiplier",
    "batch_size": "batches", "weight_decay": "regulariser", "n_samples": "records", "loss_fn": "loss", "lose": "loss",
}  # fmt: skip
REFUSED: list[tuple[Callable[..., object], str, str]] = [
    *((partial(lethe.Run, **SAID), word, rf"{word}: unknown key; did you mean '{meant}'\?") for word, meant in MEANT.items()),
    (partial(lethe.Run, **SAID), "sigma", "divided by clip_norm"),  # the difference of units
    (partial(lethe.Run, **SAID), "batch_size", r"Poisson\(size"),
    (lethe.batches.Poisson, "batch_size", "did you mean 'size'"),
    (partial(lethe.plan, make_run()), "target_epsilon", rf"target_epsilon: plan {UNKNOWN} 'epsilon'\?"),
    (partial(lethe.certify, make_run()), "target_delta", rf"target_delta: certify {UNKNOWN} 'delta'\?"),
    (partial(TRAIN.fit, None, None, None, make_run()), "max_physical_batch_size", "physical_size"),
    (partial(TRAIN.fit, None, None, None, make_run()), "optimiser", "'optimizer'"),
    (partial(TRAIN.PrivacyEngine, None, None, None, None), "random_seed", r"TrainOptions\(seed="),
    *(
        (ESTIMATOR, word, rf"{word}: LogisticRegression {UNKNOWN} '{meant}'")
        for word, meant in (("penalty", "C"), ("data_norm", "feature_norm"), ("eps", "epsilon"))
    ),
    (ESTIMATOR, "max_iter", re.escape("write options=EstimatorOptions(passes=...)")),
    (ESTIMATOR, "batch_size", re.escape("write options=EstimatorOptions(batches=...)")),
    (partial(ESTIMATOR, neighbours="zero_out"), "neighbors", "given as"),
    (partial(moment_sensitivity, 1.0, 3, neighbours="zero_out"), "neighbors", "given as"),
]


@pytest.mark.parametrize(("call", "word", "said"), REFUSED, ids=[f"{place}-{word}" for place, (_, word, _) in enumerate(REFUSED)])
def test_what_is_meant_is_said(call: Callable[..., object], word: str, said: str) -> None:
    with pytest.raises(lethe.InputError, match=said) as raised:
        call(**{word: "zero_out"})
    assert isinstance(raised.value, TypeError) or UNKNOWN not in said


def test_no_synonym_is_a_field_that_the_word_already_names_in_a_run() -> None:
    assert not set(SYNONYMS) & set(lethe.Run.model_fields)
    assert not set(SPELLINGS) & set(lethe.Run.model_fields)


def test_american_spelling_is_taken_and_documents_hold_the_british() -> None:
    british = make_run(neighbours="zero_out", regulariser=lethe.regularisers.L2(0.1))
    american = make_run().replace(neighbors="zero_out", regularizer=lethe.regularisers.L2(0.1))
    assert lethe.Run(**SAID, neighbors="zero_out") == lethe.Run(**SAID, neighbours="zero_out")
    assert american == british
    assert american.run_id == british.run_id
    assert to_json(american.to_document()) == to_json(british.to_document())
    document = {{own: other for other, own in SPELLINGS.items()}.get(name, name): value for name, value in british.to_document().items()}
    assert "neighbors" in document
    assert lethe.Run.from_document(document) == british
    assert make_run().model_copy(update={"neighbors": "zero_out"}) == make_run(neighbours="zero_out")


def test_mechanisms_and_estimators_take_both_spellings() -> None:
    assert moment_sensitivity(1.0, 3, neighbors="zero_out") == moment_sensitivity(1.0, 3, neighbours="zero_out")  # pyright: ignore[reportCallIssue]
    model: Any = ESTIMATOR(neighbors="zero_out")
    copy: Any = clone(model)
    assert model.neighbours == copy.get_params()["neighbours"] == "zero_out"
    assert model.set_params(neighbors="replace_one").neighbours == "replace_one"
    with pytest.raises(ValueError, match=r"penalty.*did you mean 'C'"):
        model.set_params(penalty=1)


def test_a_function_with_arguments_of_any_name_stays_open() -> None:
    @in_other_words
    def open_ended(*, neighbours: str = "a", **others: int) -> tuple[str, dict[str, int]]:
        return neighbours, others

    assert open_ended(neighbors="b", other=1) == ("b", {"other": 1})  # pyright: ignore[reportCallIssue]
    assert did_you_mean("nothing like it", ["abc"]) == ""
    assert did_you_mean("lr", ["run", "data"]).startswith(" did you mean that of the run, lethe.Run(step_size=...)? (the factor")
    assert (
        did_you_mean("epsilon", ["run", "data"]) == " did you mean to plan the run for it, run = lethe.plan(run, epsilon=..., delta=...)?"
    )
