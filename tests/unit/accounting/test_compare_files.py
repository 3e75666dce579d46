"""The tables and files of a comparison and of a sweep: what they hold, and what plots show of numbers off the scale."""

import csv
import io
import json
import math
import re
from typing import Any, Literal

import pytest
from helpers import DESIGNS, batches, make_run
from made_up_theorems import FAKES, Fake, Growing
from printed_tables import printed

import lethe
from lethe.documents.strict import to_json
from lethe.report.files import comparison_files
from lethe.report.sections.evidence import comparison_blocks
from lethe.report.tables import sweep_tables, terminal
from lethe.theorems.registry import ALL, OURS

PNG = b"\x89PNG"


@pytest.mark.slow
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
    plots = pytest.importorskip("lethe.report.drawing")
    drawn: list[Any] = []
    draw = plots.png
    monkeypatch.setattr(plots, "png", lambda figure: (drawn.append(figure), draw(figure))[1])
    return drawn


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


@pytest.mark.slow
@pytest.mark.parametrize("design", [pytest.param(one, marks=[] if one == "shuffled_once" else pytest.mark.nightly) for one in DESIGNS])
def test_names_stand_whole_in_eighty_columns(design: str) -> None:
    run = make_run(batches=batches(design, 10))
    page = printed(*terminal(comparison_blocks(lethe.compare(run, 1e-5))), width=80)
    assert max(map(len, page.splitlines())) <= 80
    assert "…" not in page
    names = {line.split()[0] for line in page.splitlines() if line.strip()}
    assert {theorem.name for theorem in ALL} <= names
    sweep = lethe.compare(run, 1e-5, over="passes", values=[1, 5, 20, 100])
    page = printed(*sweep_tables(sweep, 80), width=80)
    assert max(map(len, page.splitlines())) <= 80
    assert {line[0].theorem for line in sweep.lines if any(row.epsilon is not None for row in line)} <= {
        line.split()[0] for line in page.splitlines() if line.strip()
    }


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
