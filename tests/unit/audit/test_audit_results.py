"""From scores to a result and a verdict: what kind it is, what it says, what it could have found, when it crosses the claim."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_truths import CONDITIONAL, POINT, RESULT, claim
from audit_truths import result as found_result

from lethe.audit import AuditSetting, Ranks, two_world
from lethe.audit.games.verdict import usual_ranks
from lethe.audit.page import AuditPage
from lethe.audit.statistics.counts import Guesses, Tally
from lethe.audit.statistics.curves import GaussianCurve, SampledGaussianCurve
from lethe.audit.statistics.lower_bounds import bayesian_epsilon, credible, point_estimate
from lethe.audit.statistics.result import AuditResult
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split, ThresholdRule
from lethe.errors import InputError

SETTING = AuditSetting(delta=1e-5, neighbours="add_or_remove", threat="final_model")
GENERATOR = np.random.default_rng(0)
OUT, IN = GENERATOR.normal(size=300), GENERATOR.normal(size=300) + 2
FIXED = FixedThreshold(threshold=1.0)
RULES: list[ThresholdRule] = [FIXED, Split(seed=0), MultiSplit(seed=0, splits=5), usual_ranks(100), Ranks(ranks=(1,))]


def with_setting(**changes: Any) -> AuditSetting:
    return SETTING.model_copy(update=changes)


def scores(distance: float, runs: int = 100) -> tuple[Any, Any]:
    generator = np.random.default_rng(1)
    return generator.normal(size=runs), distance + generator.normal(size=runs)


def test_two_worlds() -> None:
    result = two_world(OUT, IN, SETTING, rule=FIXED, seeds=(1, 2))
    assert (result.kind, result.unit, result.selection, result.level, result.family) == ("certified", "run", "fixed", 0.05, None)
    assert (result.counts, result.seeds, result.warnings) == (Tally.at(1.0, OUT, IN), (1, 2), ())
    assert 0 < result.epsilon < 5
    assert two_world(OUT, IN, with_setting(level=0.001), rule=FIXED).epsilon < result.epsilon
    for often in (30, 3):
        repeated = two_world(np.repeat(OUT[:100], often), IN, SETTING, rule=FIXED)
        assert any("same noise" in warning for warning in repeated.warnings)
    # Another curve makes it conditional.
    result = two_world(OUT, IN, with_setting(curve=GaussianCurve()), rule=Split(seed=0))
    assert (result.kind, result.family) == ("conditional", "Gaussian")
    sampled = with_setting(curve=SampledGaussianCurve(sampling_probability=1.0, steps=3))
    steps = two_world(OUT, IN, sampled, rule=Ranks(ranks=(10, 30)), unit="step")
    assert (steps.kind, steps.unit) == ("conditional", "step")


def test_credible_and_point_estimates() -> None:
    limit = credible(OUT, IN, SETTING, rule=FIXED)
    assert (limit.kind, limit.level) == ("credible", 0.05)
    assert limit.epsilon == bayesian_epsilon(Tally.at(1.0, OUT, IN), delta=1e-5, level=0.05) < (limit.at_best or 0.0)
    plain = point_estimate(OUT, IN, SETTING, unit="run", threshold=1.0)
    assert (plain.kind, plain.level, plain.warnings, plain.at_best) == ("point_estimate", None, (), None)
    perfect = point_estimate(OUT, IN + 20, SETTING, unit="guess")
    assert (perfect.epsilon, len(perfect.warnings)) == (math.inf, 3)


def test_a_fixed_threshold_shows_at_best_what_no_error_shows() -> None:
    """Clopper and Pearson of no error in n trials at level a is 1 - a^(1/n), in closed form."""
    for runs in (50, 1000):
        rate = 1 - 0.025 ** (1 / runs)
        result = two_world(*scores(0.0, runs), SETTING, rule=FixedThreshold(threshold=0.5))
        assert result.at_best == pytest.approx(math.log((1 - rate - 1e-5) / rate), rel=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.selection)
@pytest.mark.parametrize("curve", [None, GaussianCurve()], ids=["any", "Gaussian"])
def test_no_scores_show_more_and_some_show_as_much(rule: ThresholdRule, curve: Any) -> None:
    setting = SETTING if curve is None else with_setting(curve=curve)
    results = [two_world(*scores(distance), setting, rule=rule) for distance in (0.0, 1.0, 3.0, 100.0)]
    assert all(result.epsilon <= result.at_best for result in results)
    (best,) = {result.at_best for result in results}  # it is of the rule, not of the scores
    without, with_record = np.append(np.zeros(99), -1.0), np.append(np.ones(99), 2.0)  # not all equal, which is refused
    assert two_world(without, with_record, setting, rule=rule).epsilon == pytest.approx(best, rel=1e-9)


def tally(false_positives: int, false_negatives: int, trials: int) -> Tally:
    return Tally(out_trials=trials, false_positives=false_positives, in_trials=trials, false_negatives=false_negatives)


FIELDS = {**RESULT, "epsilon": 4.3013, "selection": "fixed", "rule": "threshold 1", "neighbours": "add_or_remove", "threat": "white_box"}
ASSUMED = {**FIELDS, "estimator": "gaussian", "family": "Gaussian"}
CREDIBLE = {**FIELDS, "estimator": "bayesian"}
PLUG_IN = {**FIELDS, "estimator": "plug_in", "level": None, "unit": "guess", "selection": "same_data", "epsilon": math.inf}
GUESSES = Guesses(canaries=1000, guessed=100, correct=90)
ONE_RUN = {**FIELDS, "estimator": "one_run", "unit": "canary", "selection": "guesses", "counts": GUESSES}


@pytest.mark.parametrize(
    ("fields", "kind", "says", "never"),
    [
        (FIELDS, "certified", "epsilon >= 4.301 at delta = 1e-05, add or remove one: certified lower bound", "conditional"),
        (ONE_RUN, "certified", "90 of 100 guesses right, 1000 canaries", "conditional"),
        (ASSUMED, "conditional", "conditional on a trade-off curve of the family: Gaussian", "certified"),
        (CREDIBLE, "credible", "posterior probability 0.95", "bound"),
        (PLUG_IN, "point_estimate", "point estimate", "bound"),
        ({**FIELDS, "seeds": (1, 2), "warnings": ("mind",), "at_best": 5.0}, "certified", "warning    mind", "conditional"),
    ],
)
def test_each_kind_in_its_own_words_and_files(fields: dict[str, Any], kind: str, says: str, never: str, tmp_path: Path) -> None:
    result = AuditResult(**fields)
    assert result.kind == kind
    assert says in result.describe()
    assert never not in result.describe()
    assert (">=" in result.describe().splitlines()[0]) == (kind in ("certified", "conditional"))
    assert "sees every noisy step" in result.describe()
    for name in ("result.json", "result.yaml"):
        result.save(tmp_path / name)
        assert AuditResult.load(tmp_path / name) == result
    document = result.to_document()
    assert document["kind"] == kind
    with pytest.raises(InputError, match=f"gives a {kind} result"):
        AuditResult.from_document({**document, "kind": "credible" if kind == "certified" else "certified"}, source="result.json")


@pytest.mark.parametrize(
    ("fields", "changes", "word"),
    [
        (FIELDS, {"unit": "guess"}, "proves nothing"),
        (FIELDS, {"selection": "same_data"}, "proves nothing"),
        (CREDIBLE, {"selection": "ranks"}, "proves nothing"),
        (ONE_RUN, {"selection": "same_data"}, "proves nothing"),
        (ONE_RUN, {"counts": FIELDS["counts"]}, "does not come from it"),
        (FIELDS, {"counts": GUESSES}, "does not come from it"),
        (FIELDS, {"level": None}, "level"),
        (PLUG_IN, {"level": 0.05}, "level"),
        (FIELDS, {"family": "Gaussian"}, "family"),
        (ASSUMED, {"family": None}, "family"),
        (FIELDS, {"epsilon": math.inf}, "finite"),
        (FIELDS, {"epsilon": math.nan}, "epsilon"),
        (FIELDS, {"at_best": 4.0}, "at_best"),
        (FIELDS, {"seeds": (1, 1)}, "twice"),
    ],
)
def test_what_does_not_fit_together_is_no_result(fields: dict[str, Any], changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        AuditResult(**{**fields, **changes})


def test_bayesian_values() -> None:
    for counts, epsilon in (((5, 120, 1000), 4.495574), ((0, 0, 500), 6.513148)):  # six decimals are given
        assert bayesian_epsilon(tally(*counts), delta=1e-5, level=0.05) == pytest.approx(epsilon, abs=1e-6)
    assert bayesian_epsilon(tally(50, 50, 100), delta=0.2, level=0.05) == 0.0
    # A continuous posterior never sits at epsilon 0, so even a coin has a limit above it: credible is not certified.
    assert 0.0 < bayesian_epsilon(tally(50, 50, 100), delta=0.0, level=0.05) < 0.02


def held(**changes: Any) -> AuditResult:
    return found_result(**{"epsilon": 0.5, **changes})


def page(*audits: AuditResult, **changes: Any) -> AuditPage:
    return AuditPage(**{"subject": "a trainer", "canary": "a record", "claim": claim(), "audits": audits, **changes})


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        (page(held()), "consistent"),
        (page(held(epsilon=1.0)), "consistent"),
        (page(held(epsilon=1.0001)), "refuted"),
        (page(held(), held(epsilon=1.5)), "refuted"),
        (page(held(), held(**CONDITIONAL)), "consistent"),
        (page(held(**CONDITIONAL)), "not_comparable"),
        (page(held(), held(**POINT)), "consistent"),
        (page(held(epsilon=9.0), claim=None), "no_claim"),
        (page(held(epsilon=9.0, neighbours="zero_out")), "not_comparable"),
        (page(held(epsilon=9.0, delta=1e-6)), "not_comparable"),
        (page(held(epsilon=9.0, delta=1e-4)), "refuted"),
        (page(held(epsilon=9.0, threat="white_box")), "not_comparable"),
        (page(held(epsilon=9.0, threat="white_box"), claim=claim(release="all")), "refuted"),
        (page(held(epsilon=9.0, threat="black_box_chosen_start")), "refuted"),
        (page(held(epsilon=9.0), claim=claim(epsilon=math.inf)), "consistent"),
        (page(refused="noise was used again"), "void"),
        (page(), "not_comparable"),
    ],
)
def test_the_verdict(shown: AuditPage, verdict: str) -> None:
    assert shown.verdict == verdict
    assert shown.failed == (verdict in ("refuted", "void"))
    certified = [one.epsilon for one in shown.audits if one.kind == "certified"]
    assert (shown.strongest is None) == (not certified)
    assert shown.strongest is None or shown.strongest.epsilon == max(certified)
    assert AuditPage.from_document(shown.to_document()) == shown
    assert verdict.split("_")[0] in shown.explain().lower() or verdict in ("no_claim", "not_comparable")


@pytest.mark.parametrize(
    ("found", "claimed", "words"),
    [
        (held(epsilon=0.0, at_best=3.0), 0.5, "no evidence: nothing was found; so many trials can show epsilon >= 3.000 at best"),
        (held(epsilon=0.0), 0.5, "no evidence: nothing was found"),
        (
            held(epsilon=0.5, at_best=0.9),
            1.0,
            "0.900 at best, which could not have refuted the claim whatever the mechanism reveals; run more",
        ),
        (held(epsilon=0.5, at_best=2.0), 1.0, ""),
        (held(epsilon=0.5, at_best=2.0), 0.2, ""),
        (held(epsilon=0.5, at_best=2.0), math.inf, ""),
    ],
)
def test_what_could_not_have_refuted_or_found_nothing_is_no_evidence(found: AuditResult, claimed: float, words: str) -> None:
    shown = page(found, claim=claim(epsilon=claimed))
    assert shown.powerless.endswith(words)
    assert bool(shown.powerless) == bool(words)
    assert ("no evidence" in shown.says) == bool(words)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_holds_the_page_and_cannot_claim_a_verdict(tmp_path: Path, suffix: str) -> None:
    shown = page(held(epsilon=2.0), held(**POINT), claim=claim(epsilon=math.inf))
    shown.save(tmp_path / f"page.{suffix}")
    assert AuditPage.load(tmp_path / f"page.{suffix}") == shown
    assert AuditPage.from_document({**page(held(epsilon=2.0)).to_document(), "verdict": "consistent"}).verdict == "refuted"
