"""compare: every theorem once, each with its reason, and nothing that is no guarantee ever chosen."""

import csv
import io
import json
import math
import re
from typing import Any, ClassVar, Literal

import pytest
from helpers import DESIGNS, batches, make_run
from rich.console import Console
from rich.table import Table

import lethe
from lethe.certificates.certificate import Citation
from lethe.certificates.comparison import RowStatus
from lethe.certificates.findings import Finding, fails, holds
from lethe.documents.strict import to_json
from lethe.report.comparison_files import comparison_files
from lethe.report.tables import comparison_tables, sweep_tables
from lethe.run.consistency import MOST_STEPS
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

    def _examine(self, run: lethe.Run) -> tuple[Finding, ...]:
        short, far = (fails(name, f"{name} [b] fails", source="steps", remedy="") for name in ("length", "size"))
        return (holds("sky", "blue"),) if run.total_steps >= self.least else (short, far)

    def _bound(self, run: lethe.Run) -> Bound:
        return Bound(guarantee=lethe.GDP(self.mu))

    def standing_on(self, run: lethe.Run) -> Standing:
        return SOUND if self.soundness == "sound" else Standing(soundness=self.soundness, why=f"it is {self.soundness}")


class Growing(Fake):
    """Bounds nothing where the noise is small."""

    def __init__(self) -> None:
        super().__init__("growing", 1.0)

    def _bound(self, run: lethe.Run) -> Bound:
        return Bound(guarantee=lethe.GDP(1.0 if run.noise_multipliers.min() > 1 else math.inf))


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


@pytest.mark.slow
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
    named = lethe.compare(make_run(), 1e-5, theorems=["feldman-2018", Composition()])
    assert sorted(row.theorem for row in named.rows) == ["composition", "feldman-2018"]


def test_a_certificate_of_many_theorems_stays_readable() -> None:
    certificate = lethe.certify(make_run(), 1e-5, (*OURS, *FAKES))
    lines = certificate.explain().splitlines()
    assert lines[-1] == "and 4 more do not apply: `lethe compare` names the hypothesis that fails"
    assert any(line.startswith("not sampled-gaussian") for line in lines)
    assert any(line.startswith("not tiny-refuted ") and "; it claims epsilon = 0.0" in line for line in lines)
    assert not any(line.startswith("not long") for line in lines)
    fewer = [theorem for theorem in OURS if theorem.name not in ("balls-in-bins", "budget-filter")]
    one_left = lethe.certify(make_run(), 1e-5, (*fewer, *FAKES[:-1])).explain().splitlines()
    assert one_left[-1].startswith("not long ")  # its own line, not one that counts it


@pytest.mark.slow
def test_no_noise_is_an_infinite_epsilon_that_json_can_hold() -> None:
    comparison = lethe.compare(make_run(noise_multiplier=0.0), 1e-5)
    assert comparison.certificate.epsilon == math.inf
    content = json.loads(to_json(comparison.to_dict()))
    assert content == comparison.to_dict()
    assert content["epsilon"] == content["rows"][0]["epsilon"] == "inf"
    assert comparison_files(comparison)["comparison.png"].startswith(PNG)
    text = str(comparison)
    assert "infinity" in text
    assert "\nNOT PRIVATE: " in text
    assert re.search(r"^optimal-shift +infinity +no bound ", text, flags=re.M)
    page = _printed(*comparison_tables(comparison), width=80)
    assert "NOT PRIVATE: " in page
    assert " used " not in page
    lines = csv.DictReader(io.StringIO(comparison_files(comparison)["comparison.csv"].decode()))
    assert {(line["status"] == "refused", line["guarantee"]) for line in lines} == {(True, "no"), (False, "none")}
    sweep = lethe.compare(make_run(noise_multiplier=0.0), 1e-5, over="passes", values=[1, 2])
    assert "proved by" in (by := str(sweep).splitlines()[3])
    assert by.split()[2:] == ["nothing", "nothing"]
    assert "NOT PRIVATE" in str(sweep)
    assert "NOT PRIVATE" in _printed(*sweep_tables(sweep, 80), width=80)


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
    with pytest.raises(lethe.InputError, match="the sweep holds no theorem of that name") as raised:
        passes.epsilons("compositon")
    assert raised.value.remedy == "give a name such as composition."


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
        ({}, {"theorems": ["compositon"]}, "composition"),
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
    with pytest.raises(lethe.InputError, match=message) as raised:
        lethe.compare(make_run(**changes), 1e-5, **arguments)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert raised.value.remedy  # every one says what to do


def test_a_delta_out_of_range_and_no_theorem_at_all() -> None:
    with pytest.raises(lethe.InputError, match="delta"):
        lethe.compare(make_run(), 1.0)
    with pytest.raises(lethe.HypothesisError, match="tiny-refuted"):
        lethe.compare(make_run(), 1e-5, theorems=FAKES[:1])
    assert lethe.compare(make_run(noise_multiplier=None), 1e-5, over="noise", values=[5], theorems=OURS).certified[0].epsilon == (
        lethe.certify(make_run(), 1e-5).epsilon
    )


@pytest.mark.slow
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


@pytest.mark.slow
def test_plots_of_one_value_and_of_nothing_finite() -> None:
    for noise, values in ((5.0, [5]), (5.0, [4.0, 5.0])):
        sweep = lethe.compare(make_run(noise_multiplier=noise), 1e-5, over="noise", values=values)
        assert comparison_files(sweep)["comparison.png"].startswith(PNG)
    silent = lethe.compare(make_run(noise_multiplier=0.0), 1e-5, over="passes", values=[1, 2])
    assert comparison_files(silent)["comparison.png"].startswith(PNG)


def test_what_is_off_the_scale_is_an_arrow_at_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = _figures(monkeypatch)
    comparison_files(lethe.compare(make_run(), 1e-5, theorems=(*OURS, Fake("far", 1e6), Fake("near", 1e-6, "refuted"))))
    (axes,) = figures[0].axes
    arrows = {round(text.xy[0], 3) for text in axes.texts if text.arrow_patch is not None}
    assert arrows == {0.0, 1.0}
    left, right = axes.get_xlim()
    drawn = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() in ("o", "X") and len(line.get_xdata())]
    assert all(left < where < right for where in drawn)
    assert len(drawn) == 1  # composition; the one used is a diamond
    assert len([tick for tick in (*axes.get_xticks(), *axes.get_xticks(minor=True)) if left <= tick <= right]) >= 4
    labels = {text.get_text() for legend in figures[0].legends for text in legend.get_texts()}
    assert "holds, no smaller" in labels
    assert not any("looser" in label for label in labels)


@pytest.mark.slow
def test_plots_say_when_nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = _figures(monkeypatch)
    silent = make_run(noise_multiplier=0.0)
    comparison_files(lethe.compare(silent, 1e-5))
    comparison_files(lethe.compare(silent, 1e-5, over="passes", values=[1, 2]))
    comparison_files(lethe.compare(make_run(), 1e-5))
    assert [figure.axes[0].get_title()[:11] for figure in figures] == ["NOT PRIVATE", "NOT PRIVATE", ""]


@pytest.mark.slow
def test_a_line_off_the_scale_leaves_through_the_top(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = _figures(monkeypatch)
    sweep = lethe.compare(make_run(), 1e-5, over="noise", values=[0.001, 5], theorems=(*OURS, Growing()))
    assert sweep.epsilons("growing")[0] == math.inf
    comparison_files(sweep)
    (axes,) = figures[0].axes
    bottom, top = axes.get_ylim()
    lines = [[float(height) for height in line.get_ydata()] for line in axes.lines]
    assert [heights for heights in lines if heights[0] > top and bottom < heights[1] < top]
    assert any("growing, off the scale elsewhere" in text.get_text() for text in axes.texts)


def _figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures drawn from now on."""
    plots = pytest.importorskip("lethe.report.plots")
    drawn: list[Any] = []
    draw = plots.png
    monkeypatch.setattr(plots, "png", lambda figure: (drawn.append(figure), draw(figure))[1])
    return drawn


def _printed(*tables: object, width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    for table in tables:
        console.print(table)
    return console.export_text()


def test_the_table_marks_claims_and_groups_what_is_refused() -> None:
    comparison = lethe.compare(make_run(), 1e-5, theorems=(*OURS, *FAKES))
    page = _printed(*comparison_tables(comparison))
    lines = page.splitlines()
    place = {name: next(number for number, line in enumerate(lines) if f"{name} " in line) for name in ("optimal-shift", "huge", "long")}
    assert place["optimal-shift"] < place["huge"] < place["long"]
    claim = next(line for line in lines if "tiny-refuted" in line)
    assert "(0.0" in claim
    assert "refuted" in claim
    assert "a claim, not a guarantee" in page
    assert page.count("[b] fails") == 1  # two theorems are refused for one reason; brackets are no markup
    assert max(map(len, lines)) <= 100
    short = _printed(*comparison_tables(comparison, applicable=True))
    assert "long" not in short
    assert all(words in short for words in ("more do not apply", "huge"))


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
def test_names_stand_whole_in_eighty_columns(design: str) -> None:
    run = make_run(batches=batches(design, 10))
    page = _printed(*comparison_tables(lethe.compare(run, 1e-5)), width=80)
    assert max(map(len, page.splitlines())) <= 80
    assert "…" not in page
    names = {line.split()[0] for line in page.splitlines() if line.strip()}
    assert {theorem.name for theorem in ALL} <= names
    sweep = lethe.compare(run, 1e-5, over="passes", values=[1, 5, 20, 100])
    page = _printed(*sweep_tables(sweep, 80), width=80)
    assert max(map(len, page.splitlines())) <= 80
    assert {line[0].theorem for line in sweep.lines if any(row.epsilon is not None for row in line)} <= {
        line.split()[0] for line in page.splitlines() if line.strip()
    }


def test_a_sweep_says_by_which_theorem() -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="steps", values=[500, 1000], theorems=(Fake("good", 0.1, least=1000), *OURS))
    assert sweep.title.startswith(f"run {make_run().run_id}, steps varied: cyclic batches")
    assert "50 steps" not in sweep.title
    assert "50 steps" in lethe.compare(make_run(), 1e-5, over="noise", values=[5], theorems=OURS).title
    lines = str(sweep).splitlines()
    assert lines[0] == sweep.title
    assert lines[3].split() == ["proved", "by", "optimal-shift", "good"]
    assert next(line for line in lines if line.startswith("good")).split()[1] == "-"
    page = _printed(*sweep_tables(sweep, 80), width=80)
    assert next(line for line in page.splitlines() if "proved by " in line).split() == ["proved", "by", "a", "b"]
    assert "a = optimal-shift, b = good" in page
    for text in (page, str(sweep)):
        assert "-: refused there" in text
        assert "the data (CSV, JSON) say why" in text


def test_the_tables_of_a_sweep_fit() -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="noise", theorems=(*OURS, *FAKES))
    pages = [_printed(table, width=80) for table in sweep_tables(sweep, 80) if isinstance(table, Table)]
    for page in pages:
        assert "…" not in page
        assert max(map(len, page.splitlines())) <= 80
        assert "smallest proved" in page
    assert sum(page.count(f"{value:g}") > 0 for value in sweep.values for page in pages) >= len(sweep.values)
    assert f"{len(OURS)} more do not apply" in _printed(*sweep_tables(sweep, 80), width=80)  # ours but two, and two fakes
