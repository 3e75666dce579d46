"""Comparisons and sweeps over every design; their tables, files and plots; and print(x), a short text, whatever the result."""

import csv
import io
import json
import math
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from helpers import DESIGNS, batches, make_run
from made_up_theorems import FAKES, Fake, Growing
from printed_tables import printed

import lethe
from lethe.accounting.certify import cumulative_privacy
from lethe.audit.statistics.curves import AuditSetting
from lethe.audit.statistics.lower_bounds import two_world
from lethe.audit.statistics.rules import FixedThreshold
from lethe.certificates.records import TrainingRecord
from lethe.documents.shortened import few_lines, shortened, thinned
from lethe.documents.strict import to_json
from lethe.report.sections.evidence import comparison_blocks
from lethe.report.tables import comparison_files, sweep_tables, terminal
from lethe.theorems.registry import ALL, OURS

PNG = b"\x89PNG"


@pytest.mark.sampled(4)
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


def test_a_sweep_over_noise_is_monotone_and_holds_the_run() -> None:
    run = make_run()
    sweep = lethe.compare(run, 1e-5, over="noise")
    assert sweep.run_value == 5.0
    assert 5.0 in sweep.values
    assert sweep.values[0] == pytest.approx(5 / 3, rel=1e-3)  # four digits
    assert sweep.values[-1] == 15.0
    for theorem in OURS:
        epsilons = [epsilon for epsilon in sweep.epsilons(theorem.name) if epsilon is not None]
        assert len(epsilons) in (0, len(sweep.values))
        assert epsilons == sorted(epsilons, reverse=True)
    assert sweep.certified[sweep.values.index(5.0)].epsilon == lethe.certify(run, 1e-5, ALL).epsilon


def test_a_sweep_over_length() -> None:
    run = make_run()
    told: list[tuple[int, int]] = []
    steps = lethe.compare(run, 1e-5, over="steps", theorems=OURS, progress=lambda done, points: told.append((done, points)))
    assert told == [(point, len(steps.values)) for point in range(1, len(steps.values) + 1)]
    assert (steps.values[0], steps.values[-1], steps.run_value) == (10, 500, 50)
    assert 50 in steps.values
    assert all(value % 10 == 0 for value in steps.values)
    passes = lethe.compare(run, 1e-5, over="passes", theorems=OURS)
    assert tuple(10 * value for value in passes.values) == steps.values
    assert [row.epsilon for row in passes.certified] == [row.epsilon for row in steps.certified]
    assert lethe.compare(make_run(steps=4), 1e-5, over="steps", theorems=OURS).values[-1] == 40  # shorter than a pass
    with pytest.raises(lethe.InputError, match="the sweep holds no theorem of that name") as raised:
        passes.epsilons("compositon")
    assert raised.value.remedy == "give a name such as composition, random-allocation."


def test_no_noise_is_an_infinite_epsilon_that_json_can_hold() -> None:
    comparison = lethe.compare(make_run(noise_multiplier=0.0), 1e-5)
    assert comparison.certificate.epsilon == math.inf
    content = json.loads(to_json(comparison.to_dict()))
    assert content == comparison.to_dict()
    assert content["epsilon"] == content["rows"][0]["epsilon"] == "inf"
    files = comparison_files(comparison)
    assert files["comparison.png"].startswith(PNG)
    text = comparison.explain()
    assert "infinity" in text
    assert "\nNOT PRIVATE: " in text
    assert re.search(r"^optimal-shift +infinity +no bound ", text, flags=re.M)
    page = printed(*terminal(comparison_blocks(comparison)), width=80)
    assert "NOT PRIVATE: " in page
    assert " used " not in page
    lines = csv.DictReader(io.StringIO(files["comparison.csv"].decode()))
    assert {(line["status"] == "refused", line["guarantee"]) for line in lines} == {(True, "no"), (False, "none")}
    sweep = lethe.compare(make_run(noise_multiplier=0.0), 1e-5, over="passes", values=[1, 2])
    assert "proved by" in (by := sweep.explain().splitlines()[3])
    assert by.split()[2:] == ["nothing", "nothing"]
    assert "NOT PRIVATE" in str(sweep)
    assert "NOT PRIVATE" in printed(*sweep_tables(sweep, 80), width=80)


@pytest.mark.sampled(3)
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


def test_plots_of_numbers_off_the_scale_and_of_nothing_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    plots = pytest.importorskip("lethe.report.drawing")
    figures, draw = list[Any](), plots.png
    monkeypatch.setattr(plots, "png", lambda figure: (figures.append(figure), draw(figure))[1])
    comparison_files(lethe.compare(make_run(), 1e-5, theorems=(*OURS, Fake("far", 1e6), Fake("near", 1e-6, "refuted"))))
    (axes,) = figures[0].axes
    arrows = {round(text.xy[0], 3) for text in axes.texts if text.arrow_patch is not None}
    assert arrows == {0.0, 1.0}
    left, right = axes.get_xlim()
    drawn = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() in ("o", "X") and len(line.get_xdata())]
    assert all(left < where < right for where in drawn)
    assert len(drawn) == 1  # composition; the one used is a diamond
    assert len([tick for tick in (*axes.get_xticks(), *axes.get_xticks(minor=True)) if left <= tick <= right]) >= 4
    assert "holds, no smaller" in {text.get_text() for legend in figures[0].legends for text in legend.get_texts()}
    sweep = lethe.compare(make_run(), 1e-5, over="noise", values=[0.001, 5], theorems=(*OURS, Growing()))
    assert sweep.epsilons("growing")[0] == math.inf
    comparison_files(sweep)
    (axes,) = figures[1].axes
    bottom, top = axes.get_ylim()
    lines = [[float(height) for height in line.get_ydata()] for line in axes.lines]
    assert [heights for heights in lines if heights[0] > top and bottom < heights[1] < top]  # it leaves through the top
    assert any("growing, off the scale elsewhere" in text.get_text() for text in axes.texts)
    silent = make_run(noise_multiplier=0.0)
    comparison_files(lethe.compare(silent, 1e-5))
    comparison_files(lethe.compare(silent, 1e-5, over="passes", values=[1, 2]))
    assert [figure.axes[0].get_title()[:11] for figure in figures] == ["", "", "NOT PRIVATE", "NOT PRIVATE"]


def test_the_table_marks_claims_and_groups_what_is_refused() -> None:
    comparison = lethe.compare(make_run(), 1e-5, theorems=(*OURS, *FAKES))
    page = printed(*terminal(comparison_blocks(comparison)))
    lines = page.splitlines()
    place = {name: next(number for number, line in enumerate(lines) if f"{name} " in line) for name in ("optimal-shift", "huge", "long")}
    assert place["optimal-shift"] < place["huge"] < place["long"]
    claim = next(line for line in lines if "tiny-refuted" in line)
    assert "(0.0" in claim
    assert "refuted" in claim
    assert "a claim, not a guarantee" in page
    assert page.count("[b] fails") == 1  # two theorems are refused for one reason; brackets are no markup
    assert max(map(len, lines)) <= 100
    short = printed(*terminal(comparison_blocks(comparison, applicable=True)))
    assert "long" not in short
    assert all(words in short for words in ("more do not apply", "huge"))


@pytest.mark.parametrize("design", [pytest.param(one, marks=[] if one == "shuffled_once" else pytest.mark.nightly) for one in DESIGNS])
def test_names_stand_whole_in_eighty_columns(design: str) -> None:
    run = make_run(batches=batches(design, 10))
    sweep = lethe.compare(run, 1e-5, over="passes", values=[1, 5, 20, 100])
    swept = {line[0].theorem for line in sweep.lines if any(row.epsilon is not None for row in line)}
    whole = terminal(comparison_blocks(lethe.compare(run, 1e-5)))
    for tables, names in ((whole, {theorem.name for theorem in ALL}), (sweep_tables(sweep, 80), swept)):
        page = printed(*tables, width=80)
        assert max(map(len, page.splitlines())) <= 80
        assert "…" not in page
        assert names <= {line.split()[0] for line in page.splitlines() if line.strip()}


def test_a_sweep_says_by_which_theorem() -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="steps", values=[500, 1000], theorems=(Fake("good", 0.1, least=1000), *OURS))
    assert sweep.title.startswith(f"run {make_run().run_id}, steps varied: cyclic batches")
    assert "50 steps" not in sweep.title
    assert "50 steps" in lethe.compare(make_run(), 1e-5, over="noise", values=[5], theorems=OURS).title
    lines = sweep.explain().splitlines()
    assert lines[0] == sweep.title
    assert lines[3].split() == ["proved", "by", "optimal-shift", "good"]
    assert next(line for line in lines if line.startswith("good")).split()[1] == "-"
    page = printed(*sweep_tables(sweep, 80), width=80)
    assert next(line for line in page.splitlines() if "proved by " in line).split() == ["proved", "by", "a", "b"]
    assert "a = optimal-shift, b = good" in page
    for text in (page, sweep.explain()):
        assert "-: refused there" in text
        assert "the data (CSV, JSON) say why" in text


LISTED = [5.0] * 50


RESULTS: dict[str, Callable[[], Any]] = {
    "Run": make_run,
    "Run with a list": lambda: make_run(noise_multiplier=LISTED),
    "Certificate": lambda: lethe.certify(make_run(), 1e-5),
    "Certificate of nothing": lambda: lethe.certify(make_run(noise_multiplier=0.0), 1e-5),
    "Certificate of a list": lambda: lethe.certify(make_run(noise_multiplier=LISTED), 1e-5),
    "Comparison": lambda: lethe.compare(make_run(), 1e-5),
    "Sweep": lambda: lethe.compare(make_run(), 1e-5, over="noise", theorems=["optimal-shift", "composition"]),
    "Allocation": lambda: lethe.allocate(make_run(noise_multiplier=None), 1.0, 1e-5),
    "Verification": lambda: lethe.verify(lethe.certify(make_run(), 1e-5)),
    "AuditResult": lambda: two_world(
        *np.random.default_rng(0).normal(size=(2, 50)),
        AuditSetting(delta=1e-5, neighbours="replace_one", threat="final_model"),
        rule=FixedThreshold(threshold=0.0),
    ),
    "Cumulative": lambda: cumulative_privacy(make_run(), 1e-5),
    "TrainingRecord": lambda: TrainingRecord(run=make_run(), by="lethe.train", released=()),
    "RDPCurve": lambda: lethe.guarantees.RDPCurve(orders=tuple(np.arange(2.0, 80.0)), values=tuple(np.arange(2.0, 80.0))),
    "Total": lambda: lethe.total([lethe.certify(make_run(noise_multiplier=noise), 1e-6) for noise in range(5, 25)], 1e-5),
    "Explicit": lambda: lethe.schedules.Explicit(LISTED),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RESULTS)
def test_print_is_short_and_repr_is_one_line(name: str) -> None:
    result = RESULTS[name]()
    assert "\n" not in repr(result)
    assert len(repr(result)) < 400
    assert len(str(result).splitlines()) <= 12
    assert len(str(result)) < 2000


def test_the_loops_of_lists_are_not_shown_but_their_range_is() -> None:
    assert repr(lethe.schedules.Explicit(LISTED)) == "Explicit(listed=<50 values from 5 to 5>)"
    assert repr(lethe.schedules.Explicit.__new__(lethe.schedules.Explicit)) == "Explicit()"  # a debugger's, where the constructor failed
    assert repr(make_run(neighbours="zero_out")).endswith("neighbours='zero_out')")
    assert shortened((1.0, 2.0)) == (1.0, 2.0)
    assert few_lines(list("abcdefghijkl"), whole="all()") == "\n".join("abcdefghijkl")
    assert few_lines(list("abcdefghijklm"), whole="all()") == "\n".join([*"abcdefghijk", "and 2 more lines: all()"])
    assert thinned(5, 5) == [0, 1, 2, 3, 4]
    assert thinned(100, 3) == [0, 50, 99]


def test_the_claim_and_what_must_be_believed_are_never_left_out_of_a_certificate() -> None:
    for certificate in (
        lethe.certify(make_run(), 1e-5),
        lethe.certify(make_run(records=10, batches=lethe.batches.Full()), 0.2, allow_large_delta=True),
    ):
        text, whole = str(certificate), certificate.explain()
        assert text.splitlines()[:2] == whole.splitlines()[:2]
        declared = [line for line in whole.splitlines() if line.startswith(("    declared", "note:"))]
        assert declared
        assert all(line in text for line in declared)
    assert "NOT PRIVATE" in str(lethe.certify(make_run(noise_multiplier=0.0), 1e-5))


def test_a_short_comparison_never_shows_a_claim_as_proved() -> None:
    comparison = lethe.compare(make_run(), 1e-5)
    claims = {row.theorem for row in comparison.rows if row.epsilon is not None and not row.usable}
    assert claims
    assert not any(line.split()[0] in claims for line in str(comparison).splitlines())
