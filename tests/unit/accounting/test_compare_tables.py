"""The tables of a comparison and of a sweep, as they are printed."""

import pytest
from helpers import DESIGNS, batches, make_run
from made_up_theorems import FAKES, Fake
from printed_tables import printed
from rich.table import Table

import lethe
from lethe.report.sections.evidence import comparison_blocks
from lethe.report.tables import sweep_tables, terminal
from lethe.theorems.registry import ALL, OURS


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


@pytest.mark.slow
def test_the_tables_of_a_sweep_fit() -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="noise", theorems=(*OURS, *FAKES))
    pages = [printed(table, width=80) for table in sweep_tables(sweep, 80) if isinstance(table, Table)]
    for page in pages:
        assert "…" not in page
        assert max(map(len, page.splitlines())) <= 80
        assert "smallest proved" in page
    assert sum(page.count(f"{value:g}") > 0 for value in sweep.values for page in pages) >= len(sweep.values)
    assert f"{len(OURS)} more do not apply" in printed(*sweep_tables(sweep, 80), width=80)  # ours but two, and two fakes
