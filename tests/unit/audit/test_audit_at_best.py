"""An audit says what it could have found at best, and one that could find nothing is no success."""

import io
import math
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import lethe
from lethe.audit.claim import Claim
from lethe.audit.games.verdict import usual_ranks
from lethe.audit.page import AuditPage
from lethe.audit.statistics.curves import GaussianCurve
from lethe.audit.statistics.lower_bounds import credible, one_run, point_estimate, two_world
from lethe.audit.statistics.result import AuditResult
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Ranks, Split, ThresholdRule
from lethe.audit.statistics.setting import AuditSetting
from lethe.report.audit_tables import audit_tables

SETTING = AuditSetting(delta=1e-5, neighbours="replace_one", threat="final_model")
RULES: list[ThresholdRule] = [
    FixedThreshold(threshold=0.5),
    Split(seed=0),
    MultiSplit(seed=0, splits=5),
    usual_ranks(100),
    Ranks(ranks=(1,)),
]


def _scores(distance: float, runs: int = 100) -> tuple[Any, Any]:
    generator = np.random.default_rng(1)
    return generator.normal(size=runs), distance + generator.normal(size=runs)


def test_a_fixed_threshold_shows_at_best_what_no_error_shows() -> None:
    """Clopper and Pearson of no error in n trials at level a is 1 - a^(1/n), in closed form."""
    for runs in (50, 1000):
        rate = 1 - 0.025 ** (1 / runs)
        result = two_world(*_scores(0.0, runs), SETTING, rule=FixedThreshold(threshold=0.5))
        assert result.at_best == pytest.approx(math.log((1 - rate - 1e-5) / rate), rel=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.selection)
@pytest.mark.parametrize("curve", [None, GaussianCurve()], ids=["any", "Gaussian"])
def test_no_scores_show_more_and_some_show_as_much(rule: ThresholdRule, curve: Any) -> None:
    setting = SETTING if curve is None else SETTING.model_copy(update={"curve": curve})
    bests = set()
    for distance in (0.0, 1.0, 3.0, 100.0):
        result = two_world(*_scores(distance), setting, rule=rule)
        assert result.at_best is not None
        assert result.epsilon <= result.at_best
        bests.add(result.at_best)
    assert len(bests) == 1  # it is of the rule, not of the scores
    without, with_record = np.append(np.zeros(99), -1.0), np.append(np.ones(99), 2.0)  # not all equal, which is refused
    apart = two_world(without, with_record, setting, rule=rule)
    assert apart.epsilon == pytest.approx(bests.pop(), rel=1e-9)


def test_of_one_run_all_guesses_right_are_the_best() -> None:
    coins = np.random.default_rng(3).integers(0, 2, 200).astype(bool)
    for curve in (None, GaussianCurve()):
        setting = SETTING if curve is None else SETTING.model_copy(update={"curve": curve})
        blind = one_run(np.random.default_rng(2).normal(size=200), coins, setting, guesses=[(20, 20), (50, 50)])
        seeing = one_run(coins + np.random.default_rng(2).normal(size=200) / 100, coins, setting, guesses=[(20, 20), (50, 50)])
        assert blind.at_best == seeing.at_best == seeing.epsilon
        assert blind.epsilon < seeing.epsilon


def test_a_credible_limit_has_one_and_a_point_estimate_none() -> None:
    limit = credible(*_scores(1.0), SETTING, rule=FixedThreshold(threshold=0.5))
    assert limit.at_best is not None
    assert limit.at_best > limit.epsilon
    assert point_estimate(*_scores(1.0), SETTING, unit="run").at_best is None


def test_a_document_keeps_it_and_an_older_one_has_none() -> None:
    result = two_world(*_scores(1.0), SETTING, rule=FixedThreshold(threshold=0.5))
    document = result.to_document()
    assert AuditResult.from_document(document) == result
    del document["at_best"]
    old = AuditResult.from_document(document)
    assert old.at_best is None
    assert "at best" not in old.describe()
    with pytest.raises(lethe.InputError, match="at_best"):
        AuditResult.from_document({**document, "at_best": result.epsilon / 2})


def _page(result: AuditResult, claimed: float) -> AuditPage:
    claim = Claim(epsilon=claimed, delta=1e-5, neighbours="replace_one", release="last", source="a test")
    return AuditPage(subject="a trainer", canary="a record", claim=claim, audits=(result,))


def _printed(page: AuditPage) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=140)
    for part in audit_tables(page):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


GREEN, YELLOW = "\x1b[1;32m", "\x1b[1;33m"


def test_nothing_found_is_no_success() -> None:
    page = _page(two_world(*_scores(0.0), SETTING, rule=usual_ranks(100)), 0.5)
    assert page.verdict == "consistent"
    assert page.audits[0].epsilon < 0.001
    assert "no evidence: nothing was found; so many trials can show epsilon >= " in page.says
    text = _printed(page)
    assert GREEN not in text
    assert YELLOW in text
    assert "at best" in text


def test_runs_that_could_not_have_refuted_the_claim_are_no_success() -> None:
    result = two_world(*_scores(2.0), SETTING, rule=usual_ranks(100))
    assert result.at_best is not None
    page = _page(result, result.at_best + 0.1)
    assert "could not have refuted the claim" in page.says
    assert GREEN not in _printed(page)


def test_an_audit_that_found_something_and_could_have_found_more_is_one() -> None:
    result = two_world(*_scores(2.0), SETTING, rule=usual_ranks(100))
    assert result.at_best is not None
    assert 0.001 < result.epsilon < result.at_best
    page = _page(result, 0.5 * (result.epsilon + result.at_best))
    assert page.powerless == ""
    assert GREEN in _printed(page)
    assert _page(result, result.epsilon / 2).verdict == "refuted"
    assert _page(result, result.epsilon / 2).powerless == ""
