"""compare: every theorem once, each with its reason, and nothing that is no guarantee ever chosen."""

import csv
import io
import json
import math
from typing import ClassVar, Literal

import pytest
from helpers import DESIGNS, batches, make_run
from rich.console import Console

import lethe
from lethe.certificate import Citation
from lethe.comparison import RowStatus
from lethe.documents import to_json
from lethe.hypotheses import Finding, fails, holds
from lethe.report.comparison_files import comparison_files
from lethe.report.tables import comparison_table, sweep_tables
from lethe.run import MOST_STEPS
from lethe.theorems.base import SOUND, Bound, Soundness, Standing, Theorem
from lethe.theorems.composition import Composition
from lethe.theorems.registry import ALL, OURS

PNG = b"\x89PNG"


class Fake(Theorem):
    """Says `mu` of every run with at least `least` steps, whatever that is worth."""

    statement: ClassVar[str] = "A made-up bound."
    formula: ClassVar[str] = "0"
    needs: ClassVar[str] = "nothing"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (Citation(key="fake", text="Nobody."),)

    def __init__(self, name: str, mu: float, soundness: Soundness = "sound", least: int = 0) -> None:
        self.name = name  # pyright: ignore[reportAttributeAccessIssue]
        self.mu, self.soundness, self.least = mu, soundness, least

    def examine(self, run: lethe.Run) -> tuple[Finding, ...]:
        short, far = (fails(name, f"{name} [b] fails", source="steps", remedy="") for name in ("length", "size"))
        return (holds("sky", "blue"),) if run.total_steps >= self.least else (short, far)

    def _bound(self, run: lethe.Run) -> Bound:
        return Bound(guarantee=lethe.GDP(self.mu))

    def standing_on(self, run: lethe.Run) -> Standing:
        return SOUND if self.soundness == "sound" else Standing(soundness=self.soundness, why=f"it is {self.soundness}")


CLAIMS: tuple[Soundness, ...] = ("refuted", "one-sided", "proof-gap", "lower-bound")
FAKES = (
    *(Fake(f"tiny-{soundness}", 1e-3, soundness) for soundness in CLAIMS),
    Fake("huge", 50.0),
    Fake("shadow", 60.0, "dominated"),
    Fake("long", 0.5, "refuted", least=1000),
    Fake("longer", 0.5, "refuted", least=1000),
)


def _rows(comparison: lethe.Comparison) -> dict[str, tuple[RowStatus, float | None]]:
    return {row.theorem: (row.status, row.epsilon) for row in comparison.rows}


@pytest.mark.parametrize("release", ["last", "all"])
@pytest.mark.parametrize("design", DESIGNS)
def test_every_theorem_appears_once_with_a_reason(design: str, release: str) -> None:
    run = make_run(batches=batches(design, 10), release=release)
    comparison = lethe.compare(run, 1e-5)
    assert sorted(row.theorem for row in comparison.rows) == sorted(theorem.name for theorem in ALL)
    assert all(row.why and row.citations for row in comparison.rows)
    assert {row.theorem for row in comparison.rows if row.ours} == {theorem.name for theorem in OURS}
    assert [row.status for row in comparison.rows].count("used") == 1
    assert comparison.rows[0].status == "used"
    assert comparison.rows[0].theorem == comparison.certificate.theorem
    assert comparison.certificate.epsilon == comparison.rows[0].epsilon == lethe.certify(run, 1e-5, ALL).epsilon
    # No sound published bound is smaller, but by rounding where one is a special case of ours.
    assert comparison.certificate.epsilon == pytest.approx(lethe.certify(run, 1e-5).epsilon, rel=1e-9)
    for row in comparison.rows:
        assert (row.epsilon is None) == (row.status == "refused")
        if row.status == "refused":
            theorem = next(theorem for theorem in ALL if theorem.name == row.theorem)
            failing = [finding for finding in theorem.examine(run) if finding.status == "fails"]
            assert (row.hypothesis, row.why) == (failing[0].name, failing[0].detail)
        else:
            assert row.hypothesis is None
        if row.usable:
            assert row.epsilon is not None
            assert row.epsilon >= comparison.certificate.epsilon * (1 - 1e-9)  # a tie goes to the first in the registry


def test_what_is_no_guarantee_is_shown_and_never_chosen() -> None:
    comparison = lethe.compare(make_run(), 1e-5, theorems=(*FAKES, *OURS))
    ours = lethe.certify(make_run(), 1e-5)
    assert (comparison.certificate.theorem, comparison.certificate.epsilon) == (ours.theorem, ours.epsilon)
    rows = _rows(comparison)
    for soundness in CLAIMS:
        status, epsilon = rows[f"tiny-{soundness}"]
        assert status == soundness
        assert epsilon == lethe.GDP(1e-3).epsilon(1e-5) < ours.epsilon
    assert rows["shadow"][0] == "dominated"
    assert rows["huge"][0] == "looser"
    assert rows["long"] == ("refused", None)
    groups = ["used" if row.status == "used" else row.usable if row.epsilon is not None else "refused" for row in comparison.rows]
    assert groups == sorted(groups, key=["used", True, False, "refused"].index)
    text = str(comparison)
    assert "(0.0" in next(line for line in text.splitlines() if line.startswith("tiny-refuted"))
    assert "length: length [b] fails (also fails: size)" in text
    assert "it is dominated; here" in text


def test_ratios_say_how_much_looser() -> None:
    best = lethe.GDP(1.0).epsilon(1e-5)
    theorems = (Fake("best", 1.0), Fake("same", 1.0), Fake("near", 1.01), Fake("far", 3.0))
    why = {row.theorem: row.why for row in lethe.compare(make_run(), 1e-5, theorems=theorems).rows}
    assert why["best"] == "the smallest epsilon that is proved"
    assert why["same"] == "applies, and says the same"
    assert why["near"] == f"applies, but looser: {100 * (lethe.GDP(1.01).epsilon(1e-5) / best - 1):.2g}% larger"
    assert why["far"] == f"applies, but looser: {lethe.GDP(3.0).epsilon(1e-5) / best:.3g} times as large"


def test_a_certificate_of_many_theorems_stays_readable() -> None:
    certificate = lethe.certify(make_run(), 1e-5, (*OURS, *FAKES))
    lines = certificate.explain().splitlines()
    assert lines[-1] == "and 2 more do not apply: `lethe compare` names the hypothesis that fails"
    assert any(line.startswith("not sampled-gaussian") for line in lines)
    assert any(line.startswith("not tiny-refuted ") and "; it claims epsilon = 0.0" in line for line in lines)
    assert not any(line.startswith("not long") for line in lines)


def test_no_noise_is_an_infinite_epsilon_that_json_can_hold() -> None:
    comparison = lethe.compare(make_run(noise_multiplier=0.0), 1e-5)
    assert comparison.certificate.epsilon == math.inf
    content = json.loads(to_json(comparison.to_dict()))
    assert content == comparison.to_dict()
    assert content["epsilon"] == content["rows"][0]["epsilon"] == "inf"
    assert comparison_files(comparison)["comparison.png"].startswith(PNG)
    assert "infinity" in str(comparison)


def test_a_sweep_over_noise_is_monotone_and_holds_the_run() -> None:
    run = make_run()
    sweep = lethe.compare(run, 1e-5, over="noise")
    assert sweep.own == 5.0
    assert 5.0 in sweep.values
    assert sweep.values[0] == pytest.approx(5 / 3, rel=1e-3)  # four digits
    assert sweep.values[-1] == 15.0
    for theorem in OURS:
        epsilons = [epsilon for epsilon in sweep.epsilons(theorem.name) if epsilon is not None]
        assert len(epsilons) in (0, len(sweep.values))
        assert epsilons == sorted(epsilons, reverse=True)
    assert sweep.certified[sweep.values.index(5.0)].epsilon == lethe.certify(run, 1e-5, ALL).epsilon


@pytest.mark.parametrize("noise", [[1.0] * 25 + [3.0] * 25, {"schedule": "exponential", "first": 5.0, "ratio": 1.01}])
def test_a_schedule_of_noise_is_swept_by_a_factor(noise: object) -> None:
    run = make_run(noise_multiplier=noise)
    sweep = lethe.compare(run, 1e-5, over="noise", values=[2, 1, 2], theorems=OURS)
    assert (sweep.values, sweep.own) == ((1.0, 2.0), 1.0)
    assert "times" in sweep.axis
    assert [row.epsilon for row in sweep.certified] == [lethe.certify(run.with_noise_scaled(factor), 1e-5).epsilon for factor in (1, 2)]


def test_a_sweep_over_length() -> None:
    run = make_run()
    told: list[tuple[int, int]] = []
    steps = lethe.compare(run, 1e-5, over="steps", theorems=OURS, progress=lambda done, points: told.append((done, points)))
    assert told == [(point, len(steps.values)) for point in range(1, len(steps.values) + 1)]
    assert (steps.values[0], steps.values[-1], steps.own) == (10, 500, 50)
    assert 50 in steps.values
    assert all(value % 10 == 0 for value in steps.values)
    passes = lethe.compare(run, 1e-5, over="passes", theorems=OURS)
    assert tuple(10 * value for value in passes.values) == steps.values
    assert [row.epsilon for row in passes.certified] == [row.epsilon for row in steps.certified]
    assert passes.epsilons("composition")[0] == lethe.certify(run.replace(passes=1), 1e-5, (Composition(),)).epsilon
    assert lethe.compare(make_run(steps=4), 1e-5, over="steps", theorems=OURS).values[-1] == 40  # shorter than a pass
    with pytest.raises(lethe.InputError, match="the sweep holds"):
        passes.epsilons("nobody-2099")


def test_a_theorem_may_apply_along_a_part_of_a_sweep_only() -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="steps", values=[500, 1000], theorems=(*OURS, *FAKES))
    assert sweep.epsilons("long") == (None, lethe.GDP(0.5).epsilon(1e-5))
    assert all(row.theorem not in ("long", "tiny-refuted") for row in sweep.certified)
    content = json.loads(to_json(sweep.to_dict()))
    assert content == sweep.to_dict()
    assert [line["theorem"] for line in content["lines"]] == [theorem.name for theorem in (*OURS, *FAKES)]


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"values": [1, 2]}, "without over"),
        ({}, {"over": "epsilon"}, "steps, passes, noise"),
        ({}, {"over": "noise", "values": []}, "at least one"),
        ({}, {"over": "noise", "values": [0.0]}, "> 0"),
        ({}, {"over": "noise", "values": [math.nan]}, "> 0"),
        ({}, {"over": "noise", "values": ["many"]}, "> 0"),
        ({}, {"over": "noise", "values": "12"}, "list of numbers"),
        ({}, {"over": "noise", "values": 3}, "list of numbers"),
        ({}, {"over": "steps", "values": [True]}, "numbers"),
        ({}, {"over": "steps", "values": [2.5]}, "whole numbers"),
        ({}, {"over": "steps", "values": [MOST_STEPS + 1]}, f"at steps = {MOST_STEPS + 1}: steps"),
        ({"noise_multiplier": [5.0] * 50}, {"over": "steps"}, "noise_multiplier lists 50 values"),
        ({"step_size": [0.5] * 50}, {"over": "passes", "values": [5]}, "step_size lists 50 values"),
        ({"noise_multiplier": None}, {}, "no noise yet"),
        ({"noise_multiplier": None}, {"over": "steps"}, "no noise yet"),
        ({"noise_multiplier": None}, {"over": "noise"}, "no noise to vary"),
        ({"noise_multiplier": 0.0}, {"over": "noise"}, "no noise to vary"),
        ({"noise_multiplier": [0.0] * 50}, {"over": "noise"}, "no noise to vary"),
    ],
)
def test_bad_arguments(changes: dict[str, object], arguments: dict[str, object], message: str) -> None:
    with pytest.raises(lethe.InputError, match=message):
        lethe.compare(make_run(**changes), 1e-5, **arguments)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_delta_out_of_range_and_no_theorem_at_all() -> None:
    with pytest.raises(lethe.InputError, match="delta"):
        lethe.compare(make_run(), 1.0)
    with pytest.raises(lethe.HypothesisError, match="tiny-refuted"):
        lethe.compare(make_run(), 1e-5, theorems=FAKES[:1])
    assert lethe.compare(make_run(noise_multiplier=None), 1e-5, over="noise", values=[5], theorems=OURS).certified[0].epsilon == (
        lethe.certify(make_run(), 1e-5).epsilon
    )


@pytest.mark.parametrize("over", [None, "noise", "steps"])
def test_the_files_of_a_comparison(over: Literal["noise", "steps"] | None) -> None:
    theorems = (*OURS, *FAKES)
    if over is None:
        result, values = lethe.compare(make_run(), 1e-5, theorems=theorems), 1
    else:
        result = lethe.compare(make_run(), 1e-5, over=over, values=[500, 1000], theorems=theorems)
        values = 2
    files = comparison_files(result)
    assert [*files] == ["comparison.json", "comparison.csv", "comparison.png"]
    assert json.loads(files["comparison.json"]) == result.to_dict()
    assert files["comparison.png"].startswith(PNG)
    lines = list(csv.DictReader(io.StringIO(files["comparison.csv"].decode())))
    assert len(lines) == values * len(theorems)
    for line in lines:
        assert (line["epsilon"] == "") == (line["status"] == "refused")
        assert line["guarantee"] == ("yes" if line["status"] in ("used", "looser", "dominated") else "no")


def test_plots_of_one_value_and_of_nothing_finite() -> None:
    for noise, values in ((5.0, [5]), (5.0, [4.0, 5.0])):
        sweep = lethe.compare(make_run(noise_multiplier=noise), 1e-5, over="noise", values=values)
        assert comparison_files(sweep)["comparison.png"].startswith(PNG)
    silent = lethe.compare(make_run(noise_multiplier=0.0), 1e-5, over="passes", values=[1, 2])
    assert comparison_files(silent)["comparison.png"].startswith(PNG)


def _printed(*tables: object, width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(*tables)
    return console.export_text()


def test_the_table_marks_claims_and_groups_what_is_refused() -> None:
    page = _printed(comparison_table(lethe.compare(make_run(), 1e-5, theorems=(*OURS, *FAKES))))
    lines = page.splitlines()
    place = {name: next(number for number, line in enumerate(lines) if f" {name} " in line) for name in ("optimal-shift", "huge", "long")}
    assert place["optimal-shift"] < place["huge"] < place["long"]
    claim = next(line for line in lines if "tiny-refuted" in line)
    assert "(0.0" in claim
    assert "refuted" in claim
    assert "a claim, not a guarantee" in page
    assert page.count("[b] fails") == 1  # two theorems are refused for one reason; brackets are no markup
    assert max(map(len, lines)) <= 100


def test_the_tables_of_a_sweep_fit() -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="noise", theorems=(*OURS, *FAKES))
    pages = [_printed(table, width=80) for table in sweep_tables(sweep, 80)]
    for page in pages:
        assert "…" not in page
        assert "smallest proved" in page
    assert sum(page.count(f"{value:g}") > 0 for value in sweep.values for page in pages) >= len(sweep.values)
    assert f"{len(OURS)} more do not apply" in pages[-1]  # ours but two, and two fakes
