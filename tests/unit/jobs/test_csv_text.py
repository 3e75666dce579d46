"""CSV that is no comma-separated UTF-8 is refused with a line that mends it, and no refusal quotes a row."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lethe.errors import InputError
from lethe.jobs.tables.reading import ColumnTable

ROWS = "age,name,label\n31,Käthe Secret,a\n44,Jürgen Secret,b\n"
FOREIGN = {
    "semicolons": (ROWS.replace(",", ";").encode(), "semicolons separate its entries; it needs commas"),
    "decimal commas": (b"age;income;label\n31;1,5;a\n44;2,5;b\n", "semicolons separate its entries"),
    "tabs": (ROWS.replace(",", "\t").encode(), "tabs separate its entries"),
    "bars": (ROWS.replace(",", "|").encode(), "bars separate its entries"),
    "UTF-16": (ROWS.encode("utf-16"), "it is UTF-16"),
    "UTF-16 without its mark": (ROWS.encode("utf-16-le"), "it is UTF-16"),
    "Latin-1": (ROWS.encode("latin-1"), "column 'name' holds letters that are not UTF-8"),
    "Latin-1 first line": (ROWS.replace("age", "größe").encode("latin-1"), "the first line holds letters that are not UTF-8"),
}


@pytest.mark.parametrize("form", FOREIGN)
@pytest.mark.parametrize("name", ["own.csv", "own.csv.gz"])
def test_other_separators_and_encodings_are_refused_with_a_line_that_mends_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, name: str
) -> None:
    content, message = FOREIGN[form]
    file = tmp_path / name
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match=message) as caught:
        ColumnTable.read(file)
    assert "Secret" not in str(caught.value)
    assert caught.value.remedy is not None
    monkeypatch.chdir(tmp_path)
    eval(caught.value.remedy.removeprefix("write it anew: "), {"pandas": pd})
    table = ColumnTable.read(tmp_path / "table.csv")
    assert len(table.names) == 3
    assert table.names[-1] == "label"
    assert form != "decimal commas" or table.numbers("income").tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b,label\n1,2,x\n1,2,3,4,secret\n", "a row has 5 entries where the first line names 3 columns"),
        (b'a,label\n"secret,1\n2,b\n', "a row has 1 entries where the first line names 2 columns"),
        (b"", "is empty"),
        (b"PK\x03\x04secret", "no comma-separated text"),
    ],
    ids=["too many", "quote", "empty", "zip"],
)
@pytest.mark.parametrize("as_text", [(), ("label",)])
def test_no_refusal_quotes_a_row(tmp_path: Path, content: bytes, message: str, as_text: Any) -> None:
    (tmp_path / "own.csv").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        ColumnTable.read(tmp_path / "own.csv", as_text=as_text)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None  # whose text would


def test_letters_of_columns_kept_as_text_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(ROWS.encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8") as caught:
        ColumnTable.read(tmp_path / "own.csv", as_text=("age", "name", "label"))
    assert 'encoding="cp1252"' in (caught.value.remedy or "")
