"""An audit on the terminal, as a page and as a picture; comparisons and sweeps as frames and figures."""

import io
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")
import sys

from audit_truths import CONDITIONAL, POINT, claim, result
from helpers import make_run
from matplotlib import image
from reading_html import Read
from rich.console import Console

import lethe
from lethe.audit.page import AuditPage
from lethe.report.drawing import Figure, png, svg
from lethe.report.formats import html
from lethe.report.model import Picture
from lethe.report.plots import audit_figure
from lethe.report.sections.evidence import audit_blocks, audit_cells, audit_document, crossed
from lethe.report.tables import terminal

CONDITIONED = result(**{**CONDITIONAL, "epsilon": 5.5})
ESTIMATE = result(**POINT)


def _page(epsilon: float = 4.0, **changes: Any) -> AuditPage:
    stated = claim(epsilon, source="somebody <b>")
    return AuditPage(**{"subject": "a & b", "canary": "a record", "claim": stated, "audits": (result(), CONDITIONED, ESTIMATE), **changes})


def _text(page: AuditPage, certificate: str | None = None) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=160)
    for part in terminal(audit_blocks(page, certificate)):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _html(page: AuditPage) -> str:
    return html(audit_document(page, None, Picture("says", svg(audit_figure(page)))))


def test_the_claim_stands_above_the_audits_and_the_verdict_last_and_all_is_escaped() -> None:
    page = _html(_page())
    read = Read(page)
    for text in (_text(_page()), read.words):
        places = [text.index(words) for words in ("(4, 1e-05)-DP", "3.201", "5.500", "infinity", "consistent: no certified")]
        assert places == sorted(places)
    text = _text(_page(), "WHAT IS PROVED")
    assert text.index("a record") < text.index("WHAT IS PROVED") < text.index("3.201")
    assert "somebody" not in text  # the certificate says it better
    assert "script" not in read.tags
    assert all(address.startswith("#") for address in read.asked)
    assert all(words in page for words in ("a &amp; b", "somebody &lt;b&gt;", "OUT ranks &lt;10&gt;"))


@pytest.mark.parametrize(
    ("page", "colour"),
    [
        (_page(audits=(result(at_best=6.0),)), "32m"),
        (_page(audits=(result(at_best=3.5),)), "33m"),  # it could not have refuted the claim
        (_page(audits=(result(epsilon=0.0, at_best=6.0),)), "33m"),  # nothing was found
        (_page(2.0), "31m"),
        (_page(audits=(), refused="the scores are equal"), "31m"),
        (AuditPage(subject="a", canary="b", audits=(result(),)), "33m"),
    ],
)
def test_the_verdict_is_green_where_it_is_evidence_and_red_where_something_is_wrong(page: AuditPage, colour: str) -> None:
    text = _text(page)
    assert {code for code in ("31m", "32m", "33m") if code in text} == {colour}
    assert page.refused is None or page.refused in text
    assert [crossed(page, result) for result in page.audits] == [page.failed, False, False][: len(page.audits)]
    level = {"31m": "danger", "32m": "plain", "33m": "caution"}[colour]
    assert f'<div class="notice {level}"' in _html(page)
    assert _html(page).count('class="danger"') == len(page.audits[:1]) * page.failed


def test_bounds_are_rounded_down_and_named_by_their_kind() -> None:
    assert audit_cells(result())[:5] == ("certified", "≥ 3.201", "1e-05", "0.05", "final model")
    assert audit_cells(CONDITIONED)[:2] == ("conditional", "≥ 5.500")
    assert audit_cells(ESTIMATE)[:5] == ("point estimate", "about infinity", "1e-05", "-", "final model")
    assert audit_cells(result(estimator="bayesian", selection="fixed"))[0] == "credible"
    assert "counted 9 of 1000 OUT taken for IN" in audit_cells(result())[5]
    assert audit_cells(result(warnings=("few runs",)))[5].endswith("warning few runs")


def _reddish(picture: bytes) -> int:
    pixels = image.imread(io.BytesIO(picture))
    return int(np.count_nonzero((pixels[..., 0] > 0.7) & (pixels[..., 1] < 0.1) & (pixels[..., 2] < 0.1)))


def test_the_picture_is_red_where_a_bound_crosses_the_claim() -> None:
    curve = [(delta, 4.0 - np.log10(delta / 1e-5)) for delta in (1e-7, 1e-6, 1e-5, 1e-4)]
    assert _reddish(png(audit_figure(_page(), curve))) == 0
    assert _reddish(png(audit_figure(_page(2.0), [(delta, epsilon / 2.0) for delta, epsilon in curve]))) > 100
    assert _reddish(png(audit_figure(_page(2.0)))) > 100


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "page",
    [
        _page(float("inf")),
        _page(audits=()),
        _page(audits=(), refused="equal"),
        _page(0.0),
        _page(audits=(result(delta=0.0),)),
        AuditPage(subject="a", canary="b", audits=(result(delta=0.0),)),
        AuditPage(subject="a", canary="b", refused="equal"),
    ],
)
def test_every_page_can_be_drawn(page: AuditPage) -> None:
    assert png(audit_figure(page)).startswith(b"\x89PNG")
    assert png(audit_figure(page, [(1e-6, float("inf")), (1e-5, 2.0)])).startswith(b"\x89PNG")


COMPARISON = lethe.compare(make_run(), 1e-5, theorems=["optimal-shift", "composition", "feldman-2018", "sampled-gaussian"])
SWEEP = lethe.compare(make_run(), 1e-5, over="step_size", values=[0.25, 0.5], theorems=["optimal-shift", "composition", "sampled-gaussian"])


def test_a_comparison_is_a_frame_with_a_line_a_theorem_and_a_sweep_one_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = COMPARISON.to_frame()
    assert list(frame["theorem"]) == [row.theorem for row in COMPARISON.rows]
    assert frame["epsilon"].min() == COMPARISON.certificate.epsilon
    refused = frame.set_index("theorem").loc["sampled-gaussian"]
    assert np.isnan(refused["epsilon"])
    assert not refused["proves"]
    table = SWEEP.to_frame().pivot(index="step_size", columns="theorem", values="epsilon")
    assert tuple(table.index) == SWEEP.values
    assert tuple(table["composition"]) == SWEEP.epsilons("composition")
    assert table["sampled-gaussian"].isna().all()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(lethe.MissingExtraError, match="pandas"):
        SWEEP.to_frame()


def test_plots_are_figures_of_these_numbers() -> None:
    weakly = make_run(loss=lethe.losses.WeaklyConvex(weak_convexity=0.0, smoothness=0.5, gradient_bound=1.0))
    from_zero = lethe.compare(weakly, 1e-5, over="weak_convexity", theorems=["optimal-shift", "composition"])
    deltas = lethe.compare(make_run(), 1e-6, over="delta", theorems=["composition"])
    drawn = [shown.plot() for shown in (COMPARISON, SWEEP, from_zero, deltas)]
    assert all(isinstance(figure, Figure) and len(figure.axes) == 1 for figure in drawn)
    lines = drawn[1].axes[0].get_lines()
    assert any(np.allclose(line.get_ydata(), SWEEP.epsilons("composition")) for line in lines if len(line.get_ydata()) == 2)
    assert (from_zero.values[0], drawn[2].axes[0].get_xscale()) == (0.0, "linear")
    assert drawn[3].axes[0].get_ylabel() == "epsilon"
