"""An audit on the terminal, as a page and as a picture."""

import io
from typing import Any

import numpy as np
import pytest
from audit_truths import CONDITIONAL, POINT, claim, result
from rich.console import Console

from lethe.audit.page import AuditPage
from lethe.report.model import Picture
from lethe.report.sections.evidence import audit_blocks, audit_cells, audit_document, crossed
from lethe.report.tables import terminal

image = pytest.importorskip("matplotlib.image")
from reading_html import Read  # noqa: E402

from lethe.report.drawing import png, svg  # noqa: E402
from lethe.report.formats import html  # noqa: E402
from lethe.report.plots import audit_figure  # noqa: E402

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
    return html(audit_document(page, None, Picture("a plot", "says", svg(audit_figure(page)))))


def test_the_claim_stands_above_the_audits_and_the_verdict_last() -> None:
    for text in (_text(_page()), Read(_html(_page())).words):
        places = [text.index(words) for words in ("(4, 1e-05)-DP", "3.201", "5.500", "infinity", "consistent: no certified")]
        assert places == sorted(places)
        assert "family: Gaussian" in " ".join(text.split())
    text = _text(_page(), "WHAT IS PROVED")
    assert text.index("a record") < text.index("WHAT IS PROVED") < text.index("3.201")
    assert "somebody" not in text  # the certificate says it better


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


def test_the_page_is_whole_and_escaped() -> None:
    page = _html(_page())
    read = Read(page)
    assert "script" not in read.tags
    assert all(address.startswith("#") for address in read.asked)
    assert "a &amp; b" in page
    assert "somebody &lt;b&gt;" in page
    assert "OUT ranks &lt;10&gt;" in page


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
