"""A result says what kind of statement it is, and cannot claim another."""

import math
from pathlib import Path
from typing import Any

import pytest

from lethe.audit.statistics.counts import Guesses, Tally
from lethe.audit.statistics.result import AuditResult
from lethe.errors import InputError

TALLY = Tally(out_trials=1000, false_positives=5, in_trials=1000, false_negatives=120)
FIELDS: dict[str, Any] = {
    "epsilon": 4.30199,
    "delta": 1e-5,
    "level": 0.05,
    "estimator": "clopper_pearson",
    "unit": "run",
    "selection": "fixed",
    "rule": "threshold 1, fixed in advance",
    "neighbours": "add_or_remove",
    "threat": "white_box",
    "counts": TALLY,
}
CONDITIONAL = {**FIELDS, "estimator": "gaussian", "family": "Gaussian"}
CREDIBLE = {**FIELDS, "estimator": "bayesian"}
POINT = {**FIELDS, "estimator": "plug_in", "level": None, "unit": "guess", "selection": "same_data", "epsilon": math.inf}
ONE_RUN = {
    **FIELDS,
    "estimator": "one_run",
    "unit": "canary",
    "selection": "guesses",
    "counts": Guesses(canaries=1000, guessed=100, correct=90),
}


@pytest.mark.parametrize(
    ("fields", "kind", "says", "never"),
    [
        (FIELDS, "certified", "epsilon >= 4.301 at delta = 1e-05, add or remove one: certified lower bound", "conditional"),
        (ONE_RUN, "certified", "90 of 100 guesses right, 1000 canaries", "conditional"),
        (CONDITIONAL, "conditional", "conditional on a trade-off curve of the family: Gaussian", "certified"),
        (CREDIBLE, "credible", "posterior probability 0.95", "bound"),
        (POINT, "point_estimate", "point estimate", "bound"),
    ],
)
def test_each_kind_in_its_own_words(fields: dict[str, Any], kind: str, says: str, never: str) -> None:
    result = AuditResult(**fields)
    assert result.kind == kind
    assert says in result.describe()
    assert never not in result.describe()
    assert (">=" in result.describe()) == (kind in ("certified", "conditional"))
    assert "sees every noisy step" in result.describe()


def test_what_is_printed_is_rounded_down() -> None:
    assert "4.301" in AuditResult(**FIELDS).describe()
    assert "4.302" not in AuditResult(**FIELDS).describe()


@pytest.mark.parametrize("fields", [FIELDS, CONDITIONAL, CREDIBLE, POINT, ONE_RUN, {**FIELDS, "seeds": (1, 2), "warnings": ("mind",)}])
@pytest.mark.parametrize("name", ["result.json", "result.yaml"])
def test_a_round_trip_changes_nothing(fields: dict[str, Any], name: str, tmp_path: Path) -> None:
    result = AuditResult(**fields)
    result.save(tmp_path / name)
    assert AuditResult.load(tmp_path / name) == result


@pytest.mark.parametrize(
    ("fields", "changes", "word"),
    [
        (FIELDS, {"unit": "guess"}, "proves nothing"),
        (FIELDS, {"unit": "canary"}, "proves nothing"),
        (FIELDS, {"unit": "step"}, "proves nothing"),
        (FIELDS, {"selection": "same_data"}, "proves nothing"),
        (CREDIBLE, {"selection": "ranks"}, "proves nothing"),
        (ONE_RUN, {"selection": "same_data"}, "proves nothing"),
        (ONE_RUN, {"unit": "run"}, "proves nothing"),
        (ONE_RUN, {"counts": TALLY}, "does not come from it"),
        (FIELDS, {"counts": Guesses(canaries=5, guessed=5, correct=5)}, "does not come from it"),
        (FIELDS, {"level": None}, "level"),
        (POINT, {"level": 0.05}, "level"),
        (FIELDS, {"family": "Gaussian"}, "family"),
        (CONDITIONAL, {"family": None}, "family"),
        (FIELDS, {"epsilon": math.inf}, "finite"),
        (FIELDS, {"epsilon": math.nan}, "epsilon"),
        (POINT, {"epsilon": math.nan}, "epsilon"),
        (FIELDS, {"epsilon": -1.0}, "epsilon"),
        (FIELDS, {"epsilon": True}, "epsilon"),
        (FIELDS, {"kind": "certified"}, "unknown key"),
        (FIELDS, {"counts": {"game": "chess"}}, "chess"),
        (FIELDS, {"delta": 1.0}, "delta"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        AuditResult(**{**fields, **changes})


def test_a_document_cannot_claim_another_kind() -> None:
    document = AuditResult(**POINT).to_document()
    assert document["kind"] == "point_estimate"
    with pytest.raises(InputError, match="point_estimate"):
        AuditResult.from_document({**document, "kind": "certified"}, source="result.json")
    with pytest.raises(InputError, match="mapping"):
        AuditResult.from_document([document])  # pyright: ignore[reportArgumentType]


def test_it_is_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        AuditResult(**FIELDS).epsilon = 1.0
