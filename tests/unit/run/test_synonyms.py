"""Other libraries' words: the American spellings are taken everywhere, the rest is refused with the name that is meant."""

import inspect
import re
from typing import Any

import pytest
from helpers import make_run

import lethe
from lethe.documents.strict import to_json
from lethe.errors import UnknownArgumentError
from lethe.errors.names import SPELLINGS, SYNONYMS, did_you_mean, in_other_words

SAID: dict[str, Any] = {
    "records": 1000,
    "batches": lethe.batches.Cyclic(20),
    "passes": 1,
    "step_size": 0.5,
    "clip_norm": 1.0,
    "release": "last",
}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("epochs", "passes"),
        ("num_steps", "steps"),
        ("lr", "step_size"),
        ("max_grad_norm", "clip_norm"),
        ("sigma", "noise_multiplier"),
        ("batch_size", "batches"),
        ("weight_decay", "regulariser"),
        ("n_samples", "records"),
        ("loss_fn", "loss"),
        ("lose", "loss"),  # nobody's word, but near to one
    ],
)
def test_a_run_says_what_is_meant(word: str, meant: str) -> None:
    with pytest.raises(lethe.InputError, match=rf"{word}: unknown key; did you mean '{meant}'\?"):
        lethe.Run(**SAID, **{word: 1.0})


def test_the_difference_of_units_is_told() -> None:
    with pytest.raises(lethe.InputError, match="divided by clip_norm"):
        lethe.Run(**SAID, sigma=1.0)
    with pytest.raises(lethe.InputError, match=r"Poisson\(size"):
        lethe.Run(**SAID, batch_size=20)
    with pytest.raises(lethe.InputError, match="did you mean 'size'"):
        lethe.batches.Poisson(batch_size=20)  # pyright: ignore[reportCallIssue]


def test_no_synonym_is_a_field_that_the_word_already_names_in_a_run() -> None:
    assert not set(SYNONYMS) & set(lethe.Run.model_fields)
    assert not set(SPELLINGS) & set(lethe.Run.model_fields)


@pytest.mark.parametrize(("call", "word", "meant"), [(lethe.plan, "target_epsilon", "epsilon"), (lethe.certify, "target_delta", "delta")])
def test_a_function_says_what_is_meant(call: Any, word: str, meant: str) -> None:
    with pytest.raises(UnknownArgumentError, match=rf"{word}: {call.__name__} takes no such argument; did you mean '{meant}'\?") as raised:
        call(make_run(), **{word: 1.0})
    assert isinstance(raised.value, TypeError)


def test_training_says_what_is_meant() -> None:
    train = pytest.importorskip("lethe.train")
    with pytest.raises(UnknownArgumentError, match="physical_size"):
        train.fit(None, None, None, make_run(), max_physical_batch_size=3)
    with pytest.raises(UnknownArgumentError, match="'optimizer'"):
        train.fit(None, None, None, make_run(), optimiser=3)
    with pytest.raises(UnknownArgumentError, match=r"TrainOptions\(seed="):
        train.PrivacyEngine(None, None, None, None, random_seed=3)
    assert "optimizer" in inspect.signature(train.fit).parameters


def test_american_spelling_is_taken_and_documents_hold_the_british() -> None:
    british = make_run(neighbours="zero_out", regulariser=lethe.regularisers.L2(0.1))
    american = make_run().replace(neighbors="zero_out", regularizer=lethe.regularisers.L2(0.1))
    assert lethe.Run(**SAID, neighbors="zero_out") == lethe.Run(**SAID, neighbours="zero_out")
    assert american == british
    assert american.run_id == british.run_id
    assert to_json(american.to_document()) == to_json(british.to_document())
    document = {SPELLINGS_BACK.get(name, name): value for name, value in british.to_document().items()}
    assert "neighbors" in document
    assert lethe.Run.from_document(document) == british
    assert make_run().model_copy(update={"neighbors": "zero_out"}) == make_run(neighbours="zero_out")


SPELLINGS_BACK = {own: other for other, own in SPELLINGS.items()}


def test_mechanisms_take_both_spellings() -> None:
    from lethe.mechanisms.moments import moment_sensitivity

    assert moment_sensitivity(1.0, 3, neighbors="zero_out") == moment_sensitivity(1.0, 3, neighbours="zero_out")  # pyright: ignore[reportCallIssue]
    with pytest.raises(lethe.InputError, match="given as"):
        moment_sensitivity(1.0, 3, neighbours="zero_out", neighbors="zero_out")  # pyright: ignore[reportCallIssue]


def test_estimators_take_both_spellings_and_say_what_is_meant() -> None:
    estimators = pytest.importorskip("lethe.estimators")
    from sklearn.base import clone

    model = estimators.LogisticRegression(neighbors="zero_out")
    assert model.neighbours == "zero_out"
    again: Any = clone(model)
    assert again.get_params()["neighbours"] == "zero_out"
    assert model.set_params(neighbors="replace_one").neighbours == "replace_one"
    with pytest.raises(lethe.InputError, match="given as"):
        estimators.LogisticRegression(neighbors="zero_out", neighbours="zero_out")
    for word, meant in {
        "penalty": "C",
        "data_norm": "feature_norm",
        "eps": "epsilon",
    }.items():
        with pytest.raises(UnknownArgumentError, match=rf"{word}: LogisticRegression takes no such argument; did you mean '{meant}'"):
            estimators.LogisticRegression(**{word: 1})
        with pytest.raises(ValueError, match=rf"{word}.*did you mean '{meant}'"):
            model.set_params(**{word: 1})
    for word, meant in {"max_iter": "passes", "batch_size": "batches"}.items():
        with pytest.raises(UnknownArgumentError, match=re.escape(f"write options=EstimatorOptions({meant}=...)")):
            estimators.LogisticRegression(**{word: 1})


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
