"""A Run: its documents, the numbers that follow from its fields, its unit and neighbours, and the precision that training adds."""

import json
import math
import pickle
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, LOSSES, REGULARISERS, SCHEDULES, batches, make_run

import lethe
from lethe.documents.strict import to_json
from lethe.run.precision import Precision

NOUNS: list[tuple[str, Any]] = [
    *(("batches", batches(design, 10)) for design in DESIGNS),
    *(("loss", loss) for loss in LOSSES),
    *(("regulariser", regulariser) for regulariser in REGULARISERS),
    *((name, schedule) for name in ("step_size", "noise_multiplier") for schedule in SCHEDULES),
    ("unit", "user"),
    ("precision", {"dtype": "float32", "parameter_norm": 2.0, "gradient_error": 1e-6, "roundings": 1.0}),
]


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize(("field", "value"), NOUNS)
def test_every_noun_survives_a_file(tmp_path: Path, field: str, value: Any, suffix: str) -> None:
    run = make_run(**{"steps": 50, field: value})
    run.save(tmp_path / f"run.{suffix}")
    again = lethe.Run.load(tmp_path / f"run.{suffix}")
    assert again == run
    assert again.run_id == run.run_id
    if field in ("unit", "precision"):
        assert run.to_document()[field] == value
        assert field not in make_run(steps=50).to_document()
        assert run.run_id != make_run(steps=50).run_id


def test_units_of_noise_and_touch() -> None:
    # theory.md section 1: tau = lambda z C / b; s = 2 lambda C / b for replace one, half of it for zero out.
    run = make_run(clip_norm=0.7, loss={"kind": "convex", "smoothness": 1.0}, step_size=0.2, noise_multiplier=3.0)
    assert run.noise_stds == pytest.approx(np.full(50, 0.2 * 3.0 * 0.7 / 10), rel=1e-15)
    assert run.sensitivities == pytest.approx(np.full(50, 2 * 0.2 * 0.7 / 10), rel=1e-15)
    assert run.replace(neighbours="zero_out").sensitivities == pytest.approx(run.sensitivities / 2, rel=1e-15)


def test_noise_at_pass_ends_is_one_entry_a_pass_and_one_at_the_very_end() -> None:
    run = make_run(steps=23, noise_at="pass_ends", noise_multiplier=[1.0, 2.0, 3.0])
    assert np.flatnonzero(run.noise_multipliers).tolist() == [9, 19, 22]
    assert run.noise_multipliers[[9, 19, 22]].tolist() == [1.0, 2.0, 3.0]


def test_derived_constants_of_the_regressions() -> None:
    # theory.md section 4.4: softmax sqrt(2) R and R^2/2, logistic R and R^2/4, an intercept adds 1 to R^2.
    softmax = lethe.losses.Softmax(feature_norm=3.0, intercept=True)
    assert softmax.known_gradient_bound == pytest.approx(math.sqrt(20), rel=1e-14)
    assert softmax.known_gradient_bound >= math.sqrt(20)
    assert softmax.curvature == pytest.approx((0, 5))
    logistic = lethe.losses.Logistic(feature_norm=3.0)
    assert (logistic.known_gradient_bound, *logistic.curvature) == pytest.approx((3, 0, 9 / 4))
    assert lethe.losses.SmoothedHinge(feature_norm=2.0, width=0.25).curvature == pytest.approx((0, 8))  # R^2 / (2h)
    squares = lethe.losses.LeastSquares(feature_norm=3.0, residual_bound=2.0)
    assert (squares.known_gradient_bound, *squares.curvature) == pytest.approx((6, 0, 9))
    # The cut c is a factor of the gradient; of one-versus-rest hinges the gradients add up and the curvatures do not.
    cut = lethe.Run(**{**make_run().to_document(), "loss": {"kind": "truncated_softmax_regression", "feature_norm": 3.0, "cut": 0.5}}).loss
    assert (cut.known_gradient_bound, *cut.curvature) == pytest.approx((math.sqrt(4.5), 0, 4.5))


def test_regularisers_know_their_curvature_and_diameter() -> None:
    both = make_run(regulariser=[{"kind": "ridge", "strength": 0.1}, {"kind": "elastic_net", "l1_strength": 1.0, "ridge_strength": 0.2}])
    assert both.strong_convexity == pytest.approx(0.3)
    assert both.diameter == math.inf
    bounded = make_run(regulariser=[{"kind": "ball", "radius": 2.0}, {"kind": "box", "half_width": 0.5, "dimension": 9}])
    assert bounded.diameter == pytest.approx(3.0)  # the box: 2 * 0.5 * sqrt(9)
    assert make_run(regulariser={"kind": "simplex", "total": 1.0}).diameter == pytest.approx(math.sqrt(2))


def test_a_run_is_frozen_and_hashable() -> None:
    run = make_run()
    with pytest.raises(ValueError, match="frozen"):
        run.records = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert len({run, make_run(records=np.int64(100), noise_multiplier=np.full(50, 5.0)), make_run(records=109).replace(records=100)}) == 2
    assert make_run(records=109).total_steps == 50  # records left over are not a batch
    assert run.replace(steps=7).total_steps == 7
    with pytest.raises(ValueError, match="read-only"):
        run.noise_stds[0] = 0.0


def test_what_is_released_must_be_said() -> None:
    """Left out it once meant the last iterate, of which less is known: epsilon .80 where 3.85 holds of every iterate."""
    document = make_run().to_document()
    del document["release"]
    for build in (lambda: lethe.Run(**document), lambda: lethe.Run.from_document(document, source="run.yaml")):
        with pytest.raises(lethe.InputError, match="release: missing") as caught:
            build()
        for part in ("last: only the final parameters", "checkpoint", "all: every iterate", "Do: write release: last if"):
            assert part in str(caught.value)


def test_documents_are_read_strictly(tmp_path: Path) -> None:
    document = make_run().to_document()
    path = tmp_path / "run.yaml"
    path.write_text(to_json(document).replace('"step_size": 0.5', '"step_size": 5e-1'))  # YAML 1.1 would read 5e-1 as text
    assert lethe.Run.load(path).step_size == 0.5
    for name, text, message in [
        ("run.yaml", to_json(document)[:-20], "not valid"),
        ("run.yaml", "- 1\n- 2\n", "key: value pairs"),
        ("run.yaml", "records: 5\nrecords: 6\n", "given twice"),
        ("run.yaml", "? [a]\n: 3\n", "is not text"),
        ("run.yaml", "x: !!timestamp 2024-13-45\n", "not valid"),
        ("run.yaml", "records: 1:30\n", "records: got '1:30'"),
        ("run.yaml", "records: 010x\n", "records: got '010x'"),
        ("run.yaml", f"records: {'9' * 5001}\n", "not valid"),
        ("run.yaml", f"step_size: {'9' * 400}\n", "step_size: got inf"),
        ("run.yaml", "records: 5\n", "batches: missing"),
        ("run.json", json.dumps({**document, "step_size": math.nan}), "not a number a document may hold"),
        ("run.txt", "records: 5", r"ends in '\.txt'"),
        ("missing.yaml", None, "cannot be read"),
    ]:
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(lethe.InputError, match=message) as caught:
            lethe.Run.load(tmp_path / name)
        assert name in str(caught.value)


def test_a_changed_copy_computes_everything_anew_and_a_pickled_run_is_its_fields() -> None:
    run = make_run(noise_multiplier=0.001)
    before = len(pickle.dumps(run))
    assert run.noise_stds.max() < 1e-3  # computed, and remembered
    assert len(pickle.dumps(run)) == before
    assert pickle.loads(pickle.dumps(run)) == run
    changed = run.model_copy(update={"noise_multiplier": 50.0})
    assert changed == make_run(noise_multiplier=50.0)
    assert changed.noise_stds == pytest.approx(50_000 * run.noise_stds)


PARTS = [
    (lethe.regularisers.L2(0.1), 3),
    (lethe.regularisers.L1(0.1), 2),
    (lethe.regularisers.L1L2(l1_strength=0.1, ridge_strength=0.1), 5),
    (lethe.regularisers.GroupL1(0.1), 32),
    (lethe.regularisers.NuclearNorm(0.1), 128),
    (lethe.regularisers.Ball(2.0), 32),
    (lethe.regularisers.Box(half_width=2.0, dimension=3), 0),
    (lethe.regularisers.Simplex(2.0), 80),
]


@pytest.mark.parametrize("roundings", [None, 18.0])
def test_the_update_s_roundings_the_regularisers_and_the_gradient_s_error(roundings: float | None) -> None:
    """Each count is of docs/theory.md, section 14."""
    said = {} if roundings is None else {"roundings": roundings}
    precision = {"dtype": "float32", "parameter_norm": 4.0, "gradient_error": 1e-3, **said}
    run = make_run(records=10, batches=lethe.batches.Full(), steps=3, step_size=[0.1, 0.2, 0.4], precision=precision)
    for parts in ((), *combinations(PARTS, 1), PARTS):
        rounded = run.replace(regulariser=[part for part, _ in parts] or None)
        expected = ((roundings or 1.0) + sum(count for _, count in parts)) * 4.0 * 2.0**-23 + 2e-3 * run.step_sizes
        assert rounded.rounding_errors == pytest.approx(expected, rel=1e-12)
        assert (rounded.rounding_errors >= expected).all()


def test_the_bound_on_one_rounding_is_met() -> None:
    """Weights halfway between two numbers of float32, just above 1: two vectors a hair apart end one unit apart in every coordinate."""
    middle, hair = 1.0 + 2.0**-24, 2.0**-50
    x, y = np.full(1000, middle - hair), np.full(1000, middle + hair)
    rounded = np.linalg.norm(x.astype(np.float32).astype(np.float64) - y.astype(np.float32).astype(np.float64))
    bound = Precision(dtype="float32", parameter_norm=float(np.linalg.norm(y))).rounding
    assert 0.999 * bound < rounded <= bound + np.linalg.norm(x - y)


def _run(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"records": 400, "batches": lethe.batches.Cyclic(20), "loss": {"kind": "unknown"}, "clip_norm": 1.0}
    return make_run(**{**fields, "noise_multiplier": 2.0, "release": "all", **changes})


@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "poisson", "full"])
@pytest.mark.parametrize("release", ["last", "all"])
def test_the_numbers_of_users_are_those_of_records(design: str, release: str) -> None:
    """Where clipping does not rest on one record's gradient keeping its direction, nothing in the mathematics knows the unit."""
    run = _run(batches=batches(design, 20), release=release, loss=lethe.losses.Convex(smoothness=1.0))
    one, other = lethe.certify(run, 1e-4), lethe.certify(run.replace(unit="user"), 1e-4)
    assert one.epsilon == other.epsilon < np.inf
    assert (one.theorem, one.guarantee) == (other.theorem, other.guarantee)


def test_a_certificate_says_its_unit_and_none_that_its_run_does_not() -> None:
    certificate, without = lethe.certify(_run(unit="user"), 1e-4), lethe.certify(_run(), 1e-4).to_dict()
    content = certificate.to_dict()
    assert content["unit"] == "user"
    assert "unit" not in without
    assert "replace one user" in str(lethe.Certificate.from_dict(content))
    assert "replace_one of 400 users" in lethe.compare(certificate.run, 1e-4).title
    assert "unit='user'" in repr(certificate.run)
    for wrong in ({**content, "unit": "record"}, {key: value for key, value in content.items() if key != "unit"}):
        with pytest.raises(lethe.InputError, match="unit is 'record'"):
            lethe.Certificate.from_dict(wrong)
    with pytest.raises(lethe.InputError, match="unit is 'user'"):
        lethe.Certificate.from_dict({**without, "unit": "user"})


FIELDS: dict[str, Any] = {"records": 1000, "passes": 1, "step_size": 0.5, "clip_norm": 1.0, "noise_multiplier": 4.0, "release": "all"}


@pytest.mark.parametrize("design", DESIGNS)
def test_a_run_that_says_none_means_what_other_tools_count(design: str) -> None:
    run = lethe.Run(batches=batches(design, 20), **FIELDS)
    assert run.neighbours == ("add_or_remove" if "add_or_remove" in run.batches.neighbours else "zero_out")
    assert run.touch_factor == 1.0
    assert run == lethe.Run(batches=run.batches, neighbours=run.neighbours, **FIELDS) == lethe.Run.from_document(run.to_document())
    assert run.replace(neighbours=None).neighbours == run.neighbours


@pytest.mark.parametrize("said", [{}, {"neighbours": None}, {"neighbors": None}])
def test_a_file_that_says_none_keeps_the_relation_that_costs_most(said: dict[str, Any]) -> None:
    run = lethe.Run(batches=lethe.batches.Poisson(20), **FIELDS)
    document = {name: value for name, value in run.to_document().items() if name != "neighbours"}
    read = lethe.Run.from_document({**document, **said})
    assert read.neighbours == "replace_one"
    assert lethe.certify(read, 1e-5).epsilon > lethe.certify(run, 1e-5).epsilon
