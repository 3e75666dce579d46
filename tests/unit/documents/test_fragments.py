"""A single value as text, and a mapping as text: read as strictly as files are."""

from __future__ import annotations

import warnings

import pytest

import lethe
from lethe.calculus.large_delta import delta_for, unusual_delta_warning
from lethe.documents.strict import parse_document, parse_value, to_yaml
from lethe.errors import LargeDeltaWarning


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("null", None),
        ("600", 600),
        ("1e-5", 1e-5),
        ("010", 10),
        ("1:30", "1:30"),
        ("no", "no"),
        ("[1, 2.5]", [1, 2.5]),
        ("{schedule: step}", {"schedule": "step"}),
    ],
)
def test_a_value_is_what_yaml_1_2_has(text: str, value: object) -> None:
    got = parse_value(text, "step_size")
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "text", ["{a: 1, a: 2}", "&a [1]", "*a", "[1", "{", "!!bool maybe", "!!python/object:os.system x", "a: b: c", "- 1\n2"]
)
def test_what_is_no_value_is_refused_by_name(text: str) -> None:
    with pytest.raises(lethe.InputError, match="step_size"):
        parse_value(text, "step_size")


def test_a_document_as_text_is_the_document_of_a_file() -> None:
    content = {"records": 3, "step_size": [0.1, 1e-7], "loss": {"kind": "unknown"}, "clip_norm": None}
    assert parse_document(to_yaml(content), "run.yaml") == content
    for name, text in (("run.txt", "a: 1"), ("run.yaml", "- 1"), ("run.json", "{'a': 1}"), ("run.json", '{"a": NaN}'), ("run", "a: 1")):
        with pytest.raises(lethe.InputError, match="run"):
            parse_document(text, name)


@pytest.mark.parametrize(("delta", "warned"), [(1e-6, False), (1e-4, False), (1.1e-4, True), (9e-4, True)])
def test_the_text_of_a_warning_is_there_exactly_where_there_is_one(delta: float, warned: bool) -> None:
    text = unusual_delta_warning(delta, 1000)
    assert (text is not None) == warned
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LargeDeltaWarning)
        assert delta_for(1000, delta) == delta
    assert [str(one.message) for one in caught] == ([text] if warned else [])
