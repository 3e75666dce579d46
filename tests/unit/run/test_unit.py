"""The unit of privacy in a Run, and the relation of one that says none: kept in documents, and what follows for a step's constant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, batches, make_run
from scipy.optimize import approx_fprime

import lethe
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step
from lethe.theorems.steps import step_constants


def _run(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"records": 400, "batches": lethe.batches.Cyclic(20), "loss": {"kind": "unknown"}, "clip_norm": 1.0}
    return make_run(**{**fields, "noise_multiplier": 2.0, "release": "all", **changes})


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_files_keep_users(tmp_path: Path, suffix: str) -> None:
    run = _run(unit="user")
    run.save(tmp_path / f"run.{suffix}")
    again = lethe.Run.load(tmp_path / f"run.{suffix}")
    assert again == run
    assert again.unit == "user"
    assert again.run_id == run.run_id != _run().run_id
    assert "unit='user'" in repr(run)
    assert "unit" not in _run().to_document()
    assert "replace_one of 400 users" in lethe.compare(run, 1e-4).title
    assert "users" not in lethe.compare(_run(), 1e-4).title


def test_a_unit_that_was_put_in_from_behind_is_refused() -> None:
    run = _run()
    run.__dict__["unit"] = "household"
    with pytest.raises(InputError, match="unit: got 'household'; it needs record or user"):
        require_run(run)
    with pytest.raises(InputError, match="household"):
        lethe.certify(run, 1e-4)


@pytest.mark.parametrize(
    "batches", [lethe.batches.Cyclic(20), lethe.batches.ShuffledOnce(20), lethe.batches.Poisson(20), lethe.batches.Full()]
)
@pytest.mark.parametrize("release", ["last", "all"])
def test_the_numbers_of_users_are_those_of_records(batches: Any, release: str) -> None:
    """Where clipping does not rest on one record's gradient keeping its direction, nothing in the mathematics knows the unit."""
    loss = lethe.losses.Convex(smoothness=1.0)
    run = _run(batches=batches, release=release, loss=loss)
    one, other = lethe.certify(run, 1e-4), lethe.certify(run.replace(unit="user"), 1e-4)
    assert one.epsilon == other.epsilon < np.inf
    assert (one.theorem, one.guarantee) == (other.theorem, other.guarantee)


@pytest.mark.slow
def test_clipping_the_mean_of_scalar_losses_may_expand_a_step() -> None:
    r"""Two records with $\langle u_1, u_2\rangle = 0$ make any quadratic: a clipped step of their mean expands as that of any convex loss.

    The constant of one record's scalar loss, 1, is exceeded by the map itself; that of a user's mean is not, and is nearly attained.
    """
    step, smoothness = 0.9, 1.0
    curvatures = np.array([smoothness, 1e-6])
    bound = clipped_step(step, 0.0, smoothness)

    def moved(x: np.ndarray, norm: float) -> np.ndarray:
        gradient = curvatures * x
        return x - step * gradient * min(1.0, norm / np.linalg.norm(gradient))

    largest = 0.0
    for angle in np.linspace(0.01, np.pi / 2 - 0.01, 400):
        gradient = np.array([np.cos(angle), np.sin(angle)])
        x = gradient / curvatures * (1 + 1e-7)  # just outside the ball, where clipping acts
        jacobian = approx_fprime(x, lambda z: moved(z, 1.0), 1e-5 / curvatures.max())
        largest = max(largest, np.linalg.norm(jacobian, 2))
    assert generalised_linear_step(step, 0.0, smoothness) == 1.0
    assert 0.99 * bound < largest <= bound * (1 + 1e-4)
    loss = lethe.losses.GeneralisedLinear(smoothness=smoothness, weak_convexity=0.0)
    run = _run(loss=loss, step_size=step, release="last")
    of_records, of_users = step_constants(run), step_constants(run.replace(unit="user"))
    assert of_records is not None
    assert of_users is not None
    assert of_records.constant.constant == 1.0
    assert of_users.constant.constant == pytest.approx(bound, rel=1e-12)
    assert lethe.certify(run.replace(unit="user"), 1e-4).epsilon >= lethe.certify(run, 1e-4).epsilon


def test_a_certificate_says_its_unit_and_none_that_its_run_does_not(tmp_path: Path) -> None:
    certificate = lethe.certify(_run(unit="user"), 1e-4)
    assert certificate.to_dict()["unit"] == "user"
    assert "unit" not in lethe.certify(_run(), 1e-4).to_dict()
    certificate.save(tmp_path / "certificate.json")
    again = lethe.Certificate.load(tmp_path / "certificate.json")
    assert again.run.unit == "user"
    assert "replace one user" in str(again)
    content = json.loads((tmp_path / "certificate.json").read_text())
    for wrong in ({**content, "unit": "record"}, {key: value for key, value in content.items() if key != "unit"}):
        with pytest.raises(InputError, match="unit is 'record'"):
            lethe.Certificate.from_dict(wrong)
    without = lethe.certify(_run(), 1e-4).to_dict()
    with pytest.raises(InputError, match="unit is 'user'"):
        lethe.Certificate.from_dict({**without, "unit": "user"})


FIELDS: dict[str, Any] = {"records": 1000, "passes": 1, "step_size": 0.5, "clip_norm": 1.0, "noise_multiplier": 4.0, "release": "all"}


@pytest.mark.parametrize("design", DESIGNS)
def test_a_run_that_says_none_means_what_other_tools_count(design: str) -> None:
    run = lethe.Run(batches=batches(design, 20), **FIELDS)
    assert run.neighbours == ("add_or_remove" if "add_or_remove" in run.batches.neighbours else "zero_out")
    assert run == lethe.Run(batches=run.batches, neighbours=run.neighbours, **FIELDS) == lethe.Run.from_document(run.to_document())
    assert run.replace(neighbours=None).neighbours == run.neighbours


@pytest.mark.parametrize("said", [{}, {"neighbours": None}, {"neighbors": None}])
def test_a_file_that_says_none_keeps_the_relation_that_costs_most(said: dict[str, Any]) -> None:
    run = lethe.Run(batches=lethe.batches.Poisson(20), **FIELDS)
    document = {name: value for name, value in run.to_document().items() if name != "neighbours"}
    read = lethe.Run.from_document({**document, **said})
    assert read.neighbours == "replace_one"
    assert lethe.certify(read, 1e-5).epsilon > lethe.certify(run, 1e-5).epsilon
