"""What certify, plan, compare, allocate and total refuse, one line each: the call, and what is said."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from made_up_theorems import FAKES

import lethe
from lethe.accounting.certify import cumulative_privacy, stopped
from lethe.accounting.heavy_tailed import certify_solution
from lethe.documents.strict import write_document
from lethe.heavy_tailed import Problem, multi_pass
from lethe.heavy_tailed.oracles import ClippedMean
from lethe.run.fields import MOST_STEPS

GDP = lethe.guarantees.GDP
CONVEX = lethe.losses.Convex(smoothness=0.5, gradient_bound=1.0)
LOGISTIC = lethe.losses.Logistic(feature_norm=1.0)


def certify(delta: Any = 1e-5, theorems: Any = ("composition",), **changes: Any) -> Callable[[], object]:
    return lambda: lethe.certify(make_run(**changes), delta, theorems=theorems)


def plan(*target: Any, said: Any = None, **changes: Any) -> Callable[[], object]:
    return lambda: lethe.plan(make_run(**changes), *target, **(said or {}))


def compare(said: dict[str, Any], delta: float = 1e-5, **changes: Any) -> Callable[[], object]:
    return lambda: lethe.compare(make_run(**changes), delta, **said)


def added(*parts: Any, **said: Any) -> Callable[[], object]:
    return lambda: lethe.total(list(parts), **{"delta": 1e-6, "neighbours": "replace_one", **said})


def solution(delta: Any = 1e-5, twice: bool = False, **said: Any) -> Callable[[], object]:
    def call() -> object:
        problem = Problem(gradient=lambda parameters, records: np.asarray(records), dimension=3, smoothness=1.0)
        done = multi_pass(problem, np.zeros((400, 3)), oracle=ClippedMean(clip_norm=1.5, rho=0.5), batch_size=40, step_size=0.1)
        return certify_solution(replace(done, phases=done.phases * 2) if twice else done, delta, **said)

    return call


REFUSED: tuple[tuple[Callable[[], object], str], ...] = (
    *((lambda run=run: lethe.certify(run, 1e-5), r"needs a lethe\.Run") for run in (None, {}, "run.yaml")),
    (lambda: lethe.plan({}, 1.0, 1e-5), r"needs a lethe\.Run"),  # pyright: ignore[reportArgumentType]
    *((certify(delta), "delta") for delta in (0.0, 1.0, -1e-5, 2.0, math.nan, "x", "1e-5", True, None, [1])),
    (certify(noise_multiplier=None), "no noise yet"),
    *((certify(theorems=named), "names of theorems") for named in (["feldmann-2018"], [3], None)),
    (certify(theorems=["composition", "composition"]), "is there twice"),
    *((solution(delta), "delta") for delta in (0.0, 1.0, math.nan)),
    (solution(loss="convex"), "loss"),
    (solution(twice=True), "disjoint"),
    (lambda: certify_solution(make_run(), 1e-5), "Solution"),  # pyright: ignore[reportArgumentType]
    (plan(1.0, 1e-5, noise_multiplier=[0.0] * 50), "no shape to scale"),
    *((plan(epsilon, 1e-5), "epsilon") for epsilon in (0.0, -1.0, math.nan, math.inf, True, "1")),
    *((plan(1.0, delta), "delta") for delta in (0.0, 1.0)),
    *((plan(said=said), "target alone") for said in ({}, {"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-5, "target": GDP(1.0)})),
    (compare({}, delta=1.0), "delta"),
    (compare({"values": [1, 2]}), "without over"),
    (compare({"over": "epsilon"}), "steps, passes, noise"),
    (compare({"over": "curvature", "values": [1.0]}), "did you mean 'smoothness'"),
    (compare({"theorems": ["compositon"]}), "composition"),
    (compare({"over": "noise", "values": []}), "at least one"),
    *((compare({"over": "noise", "values": values}), "> 0") for values in ([0.0], [math.nan], ["many"])),
    *((compare({"over": "noise", "values": values}), "list of numbers") for values in ("12", 3)),
    *((compare({"over": over, "values": [0.0]}), "> 0") for over in ("step_size", "delta")),
    (compare({"over": "steps", "values": [True]}), "numbers"),
    (compare({"over": "steps", "values": [2.5]}), "whole numbers"),
    (compare({"over": "steps", "values": [MOST_STEPS + 1]}), f"at steps = {MOST_STEPS + 1}: steps"),
    (compare({"over": "batch_size", "values": [10.5]}), "whole numbers"),
    (compare({"over": "batch_size", "values": [10**9]}), "values: at batch_size"),
    (compare({"over": "batch_size", "values": [10]}, batches=lethe.batches.Full()), "no size that could be varied"),
    (compare({"over": "batch_size", "values": [20]}, noise_multiplier=[5.0] * 50), "do not say how a longer"),
    (compare({"over": "smoothness"}, loss=LOGISTIC), "states no smoothness"),
    (compare({"over": "weak_convexity", "values": [0.1]}, loss=CONVEX), "states no weak convexity"),
    (compare({"over": "delta", "values": [1.0]}), "delta"),
    (compare({"over": "steps"}, noise_multiplier=[5.0] * 50), "noise_multiplier lists 50 values"),
    (compare({"over": "passes", "values": [5]}, step_size=[0.5] * 50), "step_size lists 50 values"),
    *((compare(said, noise_multiplier=None), "no noise yet") for said in ({}, {"over": "steps"})),
    *((compare({"over": "noise"}, noise_multiplier=noise), "no noise to vary") for noise in (None, 0.0, [0.0] * 50)),
    (lambda: cumulative_privacy(make_run(release="all", noise_budget=1.0), 1e-5), "noise_budget"),
    (lambda: stopped(make_run(noise_at="pass_ends"), 31), "pass ends"),
    (added(make_run()), "certify it first"),
    (added("nowhere.json"), "cannot be read"),
    (added(3), "parts: got int"),
    *((added((GDP(0.1), count)), "the number of releases") for count in (0, 2.5)),
    (added((GDP(0.1), 1, 2)), "pairs"),
    *((lambda parts=parts: lethe.total(parts, 1e-6), "parts") for parts in ([], "a.json", None)),
    (added(GDP(0.1), neighbours="replace"), "neighbours"),
    (added(GDP(0.1), epsilon=1.0), "one of the two"),
    (added(GDP(0.1), delta=None), "one of the two"),
    (added(GDP(1.0), neighbours=None), "says no neighbouring relation"),
    *((added(GDP(0.1), unit=unit), "unit") for unit in ("users", "", 1, ["user"])),
)


@pytest.mark.parametrize(("call", "said"), REFUSED, ids=[f"{number}-{said[:20]}" for number, (_, said) in enumerate(REFUSED)])
def test_it_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(lethe.InputError, match=said) as raised:
        call()
    assert raised.value.remedy or said in ("is there twice", "pass ends", "loss", "disjoint", "Solution")  # the others say what to do


def test_what_no_theorem_or_no_noise_makes_private() -> None:
    with pytest.raises(lethe.HypothesisError, match=r"can certify run .*\(windowed\)"):
        lethe.certify(make_run(), 1e-5, theorems=["windowed"])
    with pytest.raises(lethe.HypothesisError, match="tiny-refuted"):
        lethe.compare(make_run(), 1e-5, theorems=FAKES[:1])
    with pytest.raises(lethe.CalibrationError, match="no noise of this shape"):
        lethe.plan(make_run(noise_multiplier=[1.0] * 49 + [0.0]), 1.0, 1e-5)


def test_files_that_are_no_part_of_a_total(tmp_path: Path) -> None:
    make_run().save(tmp_path / "run.json")
    write_document(tmp_path / "odd.json", {"kind": "gdp", "mu": -1.0})
    inner: dict[str, Any] = {"kind": "gdp", "mu": 0.1}
    for _ in range(400):
        inner = {"kind": "tightest", "parts": [inner]}
    (tmp_path / "deep.json").write_text(json.dumps(inner))
    for name, said in (("run", "is a run, not a certificate"), ("odd", "not a certificate, statement, total"), ("deep", "deep")):
        with pytest.raises(lethe.InputError, match=said):
            added(tmp_path / f"{name}.json")()
