"""What a Run and what it is made of refuse; and other libraries' words: American spellings are taken, the rest told what is meant."""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from sklearn.base import clone

import lethe
from lethe.documents.strict import to_json
from lethe.errors import InputError
from lethe.errors.names import SPELLINGS, SYNONYMS
from lethe.mechanisms.minimisers.objective_perturbation import gradient_vertices
from lethe.mechanisms.moments import moment_sensitivity
from lethe.run.losses.linear import require_linear_loss
from lethe.run.schedules import Influence, Repeated, parse_schedule
from lethe.run.schedules.allocation import optimal_schedule
from lethe_experiments.risk.noise_schedules import exp_schedule, uniform_schedule

NAN, INF = math.nan, math.inf
SMOOTH = {"kind": "smooth", "smoothness": 1.0, "gradient_bound": 0.5}
UNKNOWN = {"loss": {"kind": "unknown"}, "clip_norm": 1.0}
ADAPTIVE = {**UNKNOWN, "clip_method": "adaptive", "clip_quantile": 0.5, "release": "all"}
SOFTMAX = {"kind": "softmax_regression", "feature_norm": 1.0}
CUT = {"kind": "truncated_softmax_regression", "feature_norm": 1.0}
HINGES = {"kind": "one_versus_rest_hinge", "feature_norm": 1.0, "width": 0.5}
FLOAT32 = {"dtype": "float32", "parameter_norm": 1.0}
CAPPED = {"batches": {"design": "poisson", "size": 10, "truncate_at": 30}, "neighbours": "zero_out", "release": "all"}


RUNS: list[tuple[dict[str, Any], str]] = [
    ({"stepsize": 1.0}, r"stepsize: unknown key; did you mean 'step_size'"),
    ({"records": 0}, "records: got 0"),
    ({"records": 10**20}, "records"),
    ({"passes": None, "steps": 10**320}, "steps"),
    ({"records": 2.5}, "records: got 2.5; it needs an integer"),
    ({"records": "100"}, "records: got '100'"),
    ({"records": True}, "records: got True"),
    ({"batches": {"design": "cyclc", "size": 3}}, "did you mean 'cyclic'"),
    ({"batches": {"design": "cyclic"}}, "batches.size: missing"),
    ({"batches": {"design": "cyclic", "size": 0}}, "batches.size: got 0"),
    ({"batches": {"design": "cyclic", "size": 101}}, "cannot exceed records"),
    ({"batches": {"design": "full", "size": 3}}, "batches.size: unknown key"),
    ({"batches": "cyclic"}, "needs a mapping"),
    ({"batches": {"size": 3}}, "design: missing"),
    ({"passes": None}, "exactly one of the two"),
    ({"passes": 3, "steps": 30}, "exactly one of the two"),
    ({"passes": 10**9}, "at most"),
    ({"step_size": 0.0}, "every step needs a size > 0"),
    ({"step_size": -1.0}, "step_size: got -1"),
    ({"step_size": NAN}, "step_size: got nan"),
    ({"step_size": "0.5"}, "step_size: got '0.5'"),
    ({"step_size": [0.5, 0.5]}, "lists 2 values; this run needs 50, one for each step"),
    ({"step_size": []}, "step_size"),
    ({"step_size": {"schedule": "exponential", "first": 1.0, "ratio": 1e10}}, "overflows"),
    ({"step_size": {"schedule": "exponential", "first": 1.0, "ratio": 1e-10}}, "every step needs a size > 0"),
    ({"step_size": 5e-324}, "needs to stay between"),
    ({"step_size": 1e-200, "clip_norm": 1e-200, "noise_multiplier": 1e-3}, "needs to stay between"),
    ({"step_size": 1e200, "noise_multiplier": 1e120}, "noise_multiplier: .* needs to stay between"),
    ({"step_size": 1e308, "clip_norm": 1e10, "noise_multiplier": None, "loss": {"kind": "unknown"}}, "step_size: .* needs to stay between"),
    ({"noise_multiplier": 5e-324, "step_size": 1e200, "clip_norm": 1e200}, "noise_multiplier: it runs from"),
    ({"noise_multiplier": -1.0}, "noise_multiplier: got -1"),
    ({"noise_multiplier": [NAN] * 50}, "noise_multiplier"),
    ({"noise_multiplier": [1.0] * 5, "noise_at": "pass_ends", "passes": 4}, "this run needs 4, one for each pass"),
    ({"clip_norm": 0.0}, "clip_norm: got 0"),
    ({"clip_norm": INF}, "clip_norm: got inf"),
    ({"loss": {"kind": "unknown"}}, "no gradient bound"),
    ({"loss": {"kind": "convex", "smoothness": -1.0}}, "loss.smoothness: got -1"),
    ({"loss": {"kind": "strongly_convex", "strong_convexity": 2.0, "smoothness": 1.0}}, "cannot exceed smoothness"),
    ({"loss": {**SOFTMAX, "gradient_bound": 1.0}}, "gradient_bound: got 1; .* reaches 1.41"),
    ({"loss": {**SOFTMAX, "feature_norm": 1e-200}}, "feature_norm: got 1e.200; it needs a number from 1e-100"),
    ({"loss": {**HINGES, "classes": 1}}, "classes"),
    ({"loss": {**HINGES, "classes": 10**400}}, "classes"),
    ({"loss": {**HINGES, "classes": 3, "width": 1e-320}}, "width"),
    ({"loss": {"kind": "smoothed_hinge", "feature_norm": 1.0, "width": True}}, "width"),
    ({"loss": {**CUT, "cut": 1.5}}, "cut"),
    ({"loss": {**CUT, "cut": 0.0}}, "cut"),
    ({"loss": CUT}, "cut: missing"),
    ({"regulariser": {"kind": "ridge", "strength": 0.0}}, "regulariser.strength"),
    ({"regulariser": []}, "empty list"),
    ({"noise_at": "sometimes"}, "noise_at: got 'sometimes'"),
    ({"release": "best"}, "release: got 'best'"),
    ({"release": None}, "release: got None; it needs 'last' or 'all'"),
    ({"neighbours": "add_or_remove"}, "removing a record moves later ones"),
    ({"clip_method": "shrink"}, "clip_method: got 'shrink'"),
    ({"clip_method": "normalise", "loss": SMOOTH}, "clip_norm is null"),
    ({"clip_groups": [0.1], "loss": SMOOTH}, "clip_norm is null"),
    ({**UNKNOWN, "clip_groups": []}, "clip_groups: got none"),
    ({**UNKNOWN, "clip_groups": [1.0, 1e-6]}, "together they bound"),
    ({**UNKNOWN, "clip_groups": [0.5, 0.0]}, r"clip_groups\.1: got 0"),
    ({**UNKNOWN, "clip_groups": [NAN]}, r"clip_groups\.0: got nan"),
    ({**UNKNOWN, "clip_groups": ["0.5"]}, r"clip_groups\.0: got '0\.5'"),
    ({**UNKNOWN, "clip_groups": 0.5}, r"clip_groups: got 0\.5"),
    ({**UNKNOWN, "clip_method": "adaptive", "release": "all"}, "clip_quantile: got null"),
    ({**UNKNOWN, "clip_quantile": 0.5}, "clip_quantile: got 0.5, and clip_method is clip"),
    ({**ADAPTIVE, "clip_quantile": 1.0}, "clip_quantile: got 1"),
    ({**ADAPTIVE, "release": "last"}, "adaptive with release last"),
    ({**ADAPTIVE, "noise_at": "pass_ends"}, "adaptive with noise at pass ends"),
    ({**ADAPTIVE, "noise_budget": 1.0}, "adaptive with noise budget"),
    ({**ADAPTIVE, "clip_groups": [0.6, 0.8]}, "adaptive with clip groups"),
    ({**ADAPTIVE, "noise": {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5]}}, "adaptive with correlated noise"),
    ({**ADAPTIVE, "clip_norm": None, "loss": SMOOTH}, "clip_norm is null"),
    ({"precision": {**FLOAT32, "dtype": "bfloat16"}}, "dtype"),
    ({"precision": {"dtype": "float32"}}, "parameter_norm"),
    ({"precision": {**FLOAT32, "gradient_error": -1.0}}, "gradient_error"),
    ({"precision": {**FLOAT32, "roundings": 0.5}}, "roundings"),
    ({"precision": {**FLOAT32, "ulps": 3}}, "ulps"),
    ({"precision": "float32"}, "precision"),
    *(({"unit": unit}, "unit") for unit in ("users", "", None, 1, ["user"])),
    ({**UNKNOWN, **CAPPED, "noise_budget": 1.0}, "a filter decides along the way"),
    ({"neighbours": "zero_out", "neighbors": "replace_one"}, "given as 'neighbours' and as 'neighbors'"),
]


EXPONENTIAL, STEP = {"schedule": "exponential", "first": 1.0}, {"schedule": "step", "first": 1.0, "factor": 0.5}
SCHEDULES: list[Any] = [
    EXPONENTIAL,
    {**EXPONENTIAL, "ratio": 0.0},
    {**EXPONENTIAL, "first": -1.0, "ratio": 0.5},
    {**STEP, "period": 0},
    {**STEP, "period": 1.5},
    {"schedule": "cosine", "first": 1.0},
    {"first": 1.0},
    [1.0, -1.0],
    [1.0, "2"],
    "1.0",
    None,
    NAN,
]
REPEATED: list[tuple[dict[str, Any], str]] = [
    ({"every": 3, "of": [1.0, 2.0]}, "lists 2 values, and every: 3"),
    ({"every": 0, "of": 1.0}, "every"),
    ({"every": 3}, "of: missing"),
    ({"every": 3, "of": True}, "of"),
    ({"every": 3, "of": NAN}, "of"),
    ({"every": 3, "of": [1.0, 2.0, -3.0]}, "of: entry 2"),
    ({"every": 3, "of": {"schedule": "expo"}}, "of: schedule"),
    ({"every": 3, "of": 1.0, "offset": 1}, "unknown key"),
]
INFLUENCES: list[tuple[dict[str, Any], str]] = [
    ({}, "exactly one"),
    ({"rate": 0.9, "weights": (1.0,)}, "exactly one"),
    ({"rate": 0.0}, "rate"),
    ({"rate": INF}, "rate"),
    ({"rate": "0.9"}, "rate"),
    ({"weights": ()}, "weights"),
    ({"weights": (1.0, 0.0)}, r"weights\.1"),
    ({"weights": (1.0, NAN)}, r"weights\.1"),
    ({"weights": np.array([[1.0]])}, "weights"),
    ({"rate": 0.9, "basis": "private"}, "basis"),
    ({"rate": 0.9, "data": [1]}, "unknown key"),
]
LISTED = Influence(weights=(1.0, 4.0, 2.0))
CALLS: list[tuple[Callable[[], object], str]] = [
    *((lambda bad=bad: parse_schedule(bad), "") for bad in SCHEDULES),
    *((lambda fields=fields: parse_schedule({"schedule": "repeated", **fields}), named) for fields, named in REPEATED),
    *((lambda inner=inner: Repeated(every=1, of=inner), "of") for inner in (True, None, "1", -1.0, [], object())),  # pyright: ignore[reportArgumentType]
    *((lambda fields=fields: Influence(**{"basis": "assumed", **fields}), named) for fields, named in INFLUENCES),
    (lambda: LISTED.values(4), "lists 3 weights; 4 steps need 4"),
    (lambda: Influence(rate=0.5).values(1100), "doubles hold ratios down to"),
    (lambda: Influence(weights=[5e-324, 1e308]).values(2), r"exp\(-1453\.64"),  # pyright: ignore[reportArgumentType]
    *((lambda bad=bad: LISTED.values(bad), "steps") for bad in (0, 1.0, True, "3", 10**12)),  # pyright: ignore[reportArgumentType]
    (lambda: Influence.from_document([1.0]), "mapping of its fields"),  # pyright: ignore[reportArgumentType]
    (lambda: optimal_schedule([1.0, 0.0], 1.0), "weights"),
    (lambda: optimal_schedule([], 1.0), "weights"),
    (lambda: optimal_schedule([1.0], 0.0), "budget"),
    (lambda: optimal_schedule([1.0], 1.0, [-1.0]), "costs"),
    (lambda: optimal_schedule([1.0], 1.0, [1.0, 1.0]), "one length"),
    (lambda: optimal_schedule([1e300, 1e300], 1.0, [1e200, 1.0]), "squared sum"),
    (lambda: optimal_schedule([1.0], 1e-310), "variance of a step"),
    *((lambda bad=bad: uniform_schedule(bad, 1.0), "steps") for bad in (0, 1.5, True, "3", 10**9)),  # pyright: ignore[reportArgumentType]
    *((lambda bad=bad: exp_schedule(bad, 3, 1.0), "gamma") for bad in (-0.1, 1.1, NAN, True)),
    (lambda: exp_schedule(0.0, 2, 1.0), "gamma = 0 with 2 steps"),
    (lambda: exp_schedule(0.5, 5000, 1.0), "the variance of a step would be inf"),
    (lambda: uniform_schedule(10, 1e-308), "the variance of every step"),
    (lambda: lethe.schedules.Step(first=1.0, factor=0.5, period=0), "period"),
    (lambda: lethe.losses.Softmax(feature_norm=1.0, classes=1), "classes"),
    (lambda: lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=INF), "residual_bound"),
    (lambda: lethe.losses.OneVersusRest(feature_norm=1.0, classes=4, width=0.3).check_targets([0, 4], 2), "whole number"),
    *(
        (lambda bad=bad: lethe.losses.Logistic(feature_norm=1.0).check_targets(bad, 2), "targets")
        for bad in ([0, 2], [0.5, 1], [-1, 1], [0], [[0, 1]], ["a", "b"], [True, False], [0, NAN])
    ),
    (lambda: gradient_vertices(lethe.losses.OneVersusRest(feature_norm=1.0, classes=4, width=0.3), "replace_one"), "one score"),
    (lambda: require_linear_loss("logistic"), r"Logistic\(feature_norm=1.0\)"),
    *((lambda bad=bad: make_run().with_noise_scaled(bad), "factor") for bad in (NAN, -1.0, INF, "a", None)),
    (lambda: lethe.Run.load(3), "needs the path of a file"),  # pyright: ignore[reportArgumentType]
    (lambda: make_run().save(None), "needs the path of a file"),  # pyright: ignore[reportArgumentType]
    (lambda: lethe.Run.from_document([]), "mapping"),  # pyright: ignore[reportArgumentType]
    (lambda: make_run().replace(records=5), "exceed records"),
    (lambda: make_run().model_copy(update={"release": "nonsense"}), "release"),
]


@pytest.mark.parametrize(("changes", "message"), RUNS, ids=[str(changes) for changes, _ in RUNS])
def test_bad_input_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_run(**changes)


@pytest.mark.parametrize("case", range(len(CALLS)))
def test_bad_parts_are_named(case: int) -> None:
    call, message = CALLS[case]
    with pytest.raises(InputError, match=message or "."):
        call()


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
NO_SUCH = "takes no such argument; did you mean"
MEANT = {
    "epochs": "passes", "num_steps": "steps", "lr": "step_size", "max_grad_norm": "clip_norm", "sigma": "noise_multiplier",
    "batch_size": "batches", "weight_decay": "regulariser", "n_samples": "records", "loss_fn": "loss", "lose": "loss",
}  # fmt: skip
REFUSED: list[tuple[Callable[..., object], str, str]] = [
    *((partial(lethe.Run, **SAID), word, rf"{word}: unknown key; did you mean '{meant}'\?") for word, meant in MEANT.items()),
    (partial(lethe.Run, **SAID), "sigma", "divided by clip_norm"),  # the difference of units
    (partial(lethe.Run, **SAID), "batch_size", r"Poisson\(size"),
    (lethe.batches.Poisson, "batch_size", "did you mean 'size'"),
    (partial(lethe.plan, make_run()), "target_epsilon", rf"target_epsilon: plan {NO_SUCH} 'epsilon'\?"),
    (partial(lethe.certify, make_run()), "target_delta", rf"target_delta: certify {NO_SUCH} 'delta'\?"),
    (partial(TRAIN.fit, None, None, None, make_run()), "max_physical_batch_size", "physical_size"),
    (partial(TRAIN.fit, None, None, None, make_run()), "optimiser", "'optimizer'"),
    (partial(TRAIN.PrivacyEngine, None, None, None, None), "random_seed", r"TrainOptions\(seed="),
    *(
        (ESTIMATOR, word, rf"{word}: LogisticRegression {NO_SUCH} '{meant}'")
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
    assert isinstance(raised.value, TypeError) or NO_SUCH not in said


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
