"""`lethe init`: what it asks, what it answers without looking, and that an answered file trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lethe
from lethe.documents.strict import read_document
from lethe.jobs.configuration import UNANSWERED
from lethe.jobs.init import quoted_text, table_configuration


def _table(path: Path, rows: int = 200) -> Path:
    random = np.random.default_rng(0)
    size, on = random.uniform(0, 9, rows), random.choice(["true", "false"], rows)
    word = random.choice(["no", 'a "quote", and a comma', "k: v # c"], rows)
    lines = ['"wide, odd: name",on,word,when,label']
    for a, b, c in zip(size, on, word, strict=True):
        lines.append(f'{a:.2f},{b},"{c.replace(chr(34), chr(34) * 2)}",2020-01-01,{"yes" if a > 4 else "no"}')
    (path / "t.csv").write_text("\n".join(lines) + "\n")
    return path / "t.csv"


def test_nothing_but_names_and_types_is_taken_from_the_table(tmp_path: Path) -> None:
    file = _table(tmp_path)
    first = table_configuration(file, "label")
    header, *lines = file.read_text().splitlines()
    file.write_text("\n".join([header, "77.5,true,other,2021-01-01,maybe", *lines[5:20]]) + "\n")
    assert table_configuration(file, "label") == first
    assert "77" not in first.replace(str(tmp_path), "")  # whose number may hold it
    assert "quote" not in first
    (tmp_path / "train.yaml").write_text(first)
    content = read_document(tmp_path / "train.yaml")
    assert content["columns"] == {
        "wide, odd: name": {"range": UNANSWERED, "missing": "refuse"},
        "on": {"range": [0, 1], "missing": "refuse"},
        "word": {"categories": UNANSWERED},
        "when": "drop",
    }
    assert content["data"]["classes"] == UNANSWERED
    assert 3**0.5 <= content["model"]["feature_norm"] <= 3**0.5 + 1e-3
    assert "public" not in content
    (tmp_path / "train.yaml").write_text(table_configuration(_table(tmp_path), "label", look=True))
    content = read_document(tmp_path / "train.yaml")
    assert content["columns"]["word"] == {"categories": ['a "quote", and a comma', "k: v # c", "no"]}
    low, high = content["columns"]["wide, odd: name"]["range"]
    assert (0 <= low < 0.2, 8.8 < high <= 9, content["data"]["classes"]) == (True, True, ["no", "yes"])


def test_a_schema_answers_what_it_can_and_nothing_of_a_dictionary(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    content = {
        "kind": arrow.array(["rare", "usual", "usual"]).dictionary_encode(),
        "size": arrow.array([1.0, 2.0, 3.0]),
        "bins": arrow.array([[1], [2], [3]]),
        "sold": arrow.array([True, False, True]),
    }
    parquet.write_table(arrow.table(content), tmp_path / "t.parquet")
    text = table_configuration(tmp_path / "t.parquet", "sold")
    assert "rare" not in text
    (tmp_path / "train.yaml").write_text(text)
    written = read_document(tmp_path / "train.yaml")
    assert written["data"]["classes"] == ["False", "True"]
    assert written["columns"]["kind"] == {"categories": UNANSWERED}
    assert written["columns"]["bins"] == "drop"
    prices = table_configuration(tmp_path / "t.parquet", "size")
    assert "target_range: ???" in prices
    assert "estimator: ridge" in prices


@pytest.mark.parametrize(
    "text", ["a", "yes", "No", "null", "~", "", " a", "1", "1e5", "a: b", "a #b", "???", "a\nb", '"', "é€", "[x]", "\u2028"]
)
def test_names_are_written_as_yaml_reads_them_back(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(f"{quoted_text(text)}: {quoted_text(text)}\nlist: [{quoted_text(text)}]\n")
    assert read_document(tmp_path / "t.yaml") == {text: text, "list": [text]}


def test_the_demo_takes_the_same_columns_and_names_the_way_out_without(tmp_path: Path) -> None:
    from lethe.jobs.demo import Demo

    file = _table(tmp_path)
    (tmp_path / "train.yaml").write_text(table_configuration(file, "label"))
    fields: dict[str, Any] = {"target": "label", "seeds": 1}
    with pytest.raises(lethe.InputError, match="lethe init --data"):
        Demo(**fields, data=file).load()
    with pytest.raises(lethe.InputError, match="not answered yet"):
        Demo(**fields, data=file, columns=tmp_path / "train.yaml").load()
    (tmp_path / "train.yaml").write_text(table_configuration(file, "label", look=True))
    table, notes, scaled = Demo(columns=tmp_path / "train.yaml").load()  # which names file and target
    assert (table.features.shape, table.class_names, scaled) == ((200, 5), ("no", "yes"), True)
    assert "Ranges and categories of 3 columns were stated and are taken as public (read off the table)." in " ".join(notes)
    (tmp_path / "only.yaml").write_text("data: {path: t.csv, target: label}\n")
    with pytest.raises(lethe.InputError, match="columns: missing"):
        Demo(**fields, data=file, columns=tmp_path / "only.yaml").load()
