import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lethe.audit.page import AuditPage, Claim
from lethe.audit.statistics.counts import Tally
from lethe.audit.statistics.result import AuditResult
from lethe.report.audit_tables import audit_cells, audit_tables, crossed, notes_of

image = pytest.importorskip("matplotlib.image")
from lethe.report.audit_html import audit_html  # noqa: E402
from lethe.report.audit_plot import audit_plot  # noqa: E402

TALLY = Tally(out_trials=1000, false_positives=9, in_trials=1000, false_negatives=400)


def _result(**changes: Any) -> AuditResult:
    fields: dict[str, Any] = {
        "epsilon": 3.20159,
        "delta": 1e-5,
        "level": 0.05,
        "estimator": "clopper_pearson",
        "unit": "run",
        "selection": "ranks",
        "rule": "OUT ranks <10> declared in advance",
        "neighbours": "replace_one",
        "threat": "final_model",
        "counts": TALLY,
    }
    return AuditResult(**{**fields, **changes})


CONDITIONAL = _result(epsilon=5.5, estimator="gaussian", family="Gaussian")
POINT = _result(epsilon=float("inf"), estimator="plug_in", level=None, selection="same_data")


def _page(epsilon: float = 4.0, **changes: Any) -> AuditPage:
    claim = Claim(epsilon=epsilon, delta=1e-5, neighbours="replace_one", release="last", source="somebody <b>")
    return AuditPage(**{"subject": "a & b", "canary": "a record", "claim": claim, "audits": (_result(), CONDITIONAL, POINT), **changes})


def _text(page: AuditPage, certificate: str | None = None) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=120)
    for part in audit_tables(page, certificate):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_claim_stands_above_the_audits_and_the_verdict_last() -> None:
    for text in (_text(_page()), audit_html(_page(), b"PNG").decode()):
        places = [text.index(words) for words in ("(4, 1e-05)-DP", "3.201", "5.500", "infinity", "consistent: no certified")]
        assert places == sorted(places)
        assert "conditional on a trade-off curve of the family: Gaussian" in text
    text = _text(_page(), "WHAT IS PROVED")
    assert text.index("a record") < text.index("WHAT IS PROVED") < text.index("3.201")
    assert "somebody" not in text  # the certificate says it better


def test_red_is_for_what_is_crossed() -> None:
    sound, refuted, void = _page(), _page(2.0), _page(audits=(), refused="the scores are equal")
    assert "31m" not in _text(sound)
    assert "31m" in _text(refuted)
    assert "31m" in _text(void)
    assert "the scores are equal" in _text(void)
    assert [crossed(refuted, result) for result in refuted.audits] == [True, False, False]
    for page in (sound, refuted, void):
        html = audit_html(page, b"PNG").decode()
        assert f'<p class="verdict {page.verdict}">' in html
        assert html.count('<tr class="crossed">') == (page is refuted)


def test_bounds_are_rounded_down_and_named_by_their_kind() -> None:
    assert audit_cells(_result()) == ("certified", "≥ 3.201", "1e-05", "0.05", "final model")
    assert audit_cells(CONDITIONAL)[:2] == ("conditional", "≥ 5.500")
    assert audit_cells(POINT) == ("point estimate", "about infinity", "1e-05", "-", "final model")
    assert "counted 9 of 1000 OUT taken for IN" in notes_of(_result())[0]
    assert notes_of(_result(warnings=("few runs",)))[-1] == "warning few runs"


@pytest.mark.slow
def test_a_page_without_a_claim_or_audits() -> None:
    bare = AuditPage(subject="a", canary="b", audits=(_result(),))
    assert len(bare.stated) == 2
    assert "nothing is claimed" in bare.says
    assert "nothing is claimed" in _text(bare)
    assert audit_plot(bare).startswith(b"\x89PNG")


def test_html_is_whole_and_escaped() -> None:
    html = audit_html(_page(), b"PNG").decode()
    assert "a &amp; b" in html
    assert "somebody &lt;b&gt;" in html
    assert "OUT ranks &lt;10&gt;" in html
    assert 'src="data:image/png;base64,UE5H"' in html
    assert "http" not in html


def _reddish(picture: bytes) -> int:
    pixels = image.imread(io.BytesIO(picture))
    return int(np.count_nonzero((pixels[..., 0] > 0.7) & (pixels[..., 1] < 0.1) & (pixels[..., 2] < 0.1)))


@pytest.mark.slow
def test_the_picture_is_red_where_a_bound_crosses_the_claim() -> None:
    curve = [(delta, 4.0 - np.log10(delta / 1e-5)) for delta in (1e-7, 1e-6, 1e-5, 1e-4)]
    assert _reddish(audit_plot(_page(), curve)) == 0
    assert _reddish(audit_plot(_page(2.0), [(delta, epsilon / 2.0) for delta, epsilon in curve])) > 100
    assert _reddish(audit_plot(_page(2.0))) > 100


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        _page(float("inf")),
        _page(audits=()),
        _page(audits=(), refused="equal"),
        _page(0.0),
        _page(audits=(_result(delta=0.0),)),
        AuditPage(subject="a", canary="b", audits=(_result(delta=0.0),)),
        AuditPage(subject="a", canary="b", refused="equal"),
    ],
)
def test_every_page_can_be_drawn(page: AuditPage) -> None:
    assert audit_plot(page).startswith(b"\x89PNG")
    assert audit_plot(page, [(1e-6, float("inf")), (1e-5, 2.0)]).startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_credible_result_is_drawn_too() -> None:
    credible = _result(estimator="bayesian", selection="fixed", rule="threshold 0, fixed in advance")
    assert audit_cells(credible)[0] == "credible"
    assert audit_plot(_page(audits=(credible,))).startswith(b"\x89PNG")
