"""A single value as text, and a mapping as text: read as strictly as files are."""

from __future__ import annotations

import pytest

import lethe
from lethe.documents.strict import parse_document, parse_value, to_yaml


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
