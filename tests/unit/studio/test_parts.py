"""The parts of the page: what must be in them, and what must not."""

from __future__ import annotations

import pytest

pytest.importorskip("shiny", reason="the studio needs Shiny")

from lethe.studio import parts
from lethe.studio.answers import ALTERNATIVES, AlternativePrice, answer
from lethe.studio.controls import CONTROLS
from lethe.studio.state import State


def html(**texts: str) -> str:
    return str(parts.headline(answer(State({**State.first().texts, **texts}).query())))


def test_the_sentence_holds_the_whole_promise() -> None:
    last, every = html(neighbours="replace_one"), html(release="all")
    assert "(1, 1e-06)-DP for one record replaced by another, if only the final parameters are seen" in last
    assert "(1, 1e-06)-DP for one record left without gradient, whatever is seen of the training" in every
    assert "(1, 1e-06)-DP for one user replaced by another" in html(unit="user", neighbours="replace_one")
    assert "Void once" in last
    assert "Void once" not in every


def test_what_is_not_private_makes_no_promise() -> None:
    page = html(find="epsilon", noise="0")
    assert "NOT PRIVATE" in page
    assert "DP for one record" not in page
    assert ">infinity<" in page


def test_a_schedule_is_named_by_its_largest_noise() -> None:
    assert "largest noise multiplier" in html(noise="{schedule: exponential, first: 1, ratio: 0.999}")
    assert "largest" not in html()


def test_text_of_others_is_no_markup() -> None:
    evil = "<script>alert(1)</script>"
    price = AlternativePrice("", None, evil)
    pages = [parts.refusal(evil), parts.nothing(evil), parts.prices({"twice as long": price}, noise=True)]
    texts = {control.name: evil if control.words is None else control.default for control in CONTROLS}
    pages.append(parts.controls(texts))
    assert all("<script>alert" not in str(page) for page in pages)
    assert all("alert(1)" in str(page) for page in pages)


def test_rows_are_those_that_change_something() -> None:
    found = dict.fromkeys(ALTERNATIVES)
    assert "<tr" in str(parts.prices({}, noise=False))
    body = str(parts.prices(found, noise=False)).partition("<tbody>")[2]
    assert "<tr" not in body


def test_every_input_has_a_label() -> None:
    page = str(parts.controls(State.first().texts))
    for control in CONTROLS:
        assert f'for="{control.name}"' in page
        assert f'id="{control.name}"' in page
