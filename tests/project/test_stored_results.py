"""What is stored of long benchmarks names its command and its code, and one row of each is computed again by night."""

import json
import os
import re
from pathlib import Path

import pytest
from repository import ROOT
from resumable import read_lines
from stored_results import RESULTS, STORED, TYPED, Stored, append, cell_of, changed_sources, differences, digest, made_by, recomputed

from lethe_experiments import REPRODUCTIONS

WITH_CELL = [stored for stored in STORED.values() if stored.cell]
PAGES = {  # of the site, by their places there
    path.relative_to(folder).as_posix(): path
    for folder, pages in ((ROOT / "docs", "**/*.md"), (ROOT / "benchmarks", "measurements/*.md"))
    for path in folder.glob(pages)
}
_NO_NUMBERS = {("records.md", "idx_files.py")}


def test_every_file_of_results_is_registered_and_its_sources_exist() -> None:
    codes = json.loads((RESULTS / "code.json").read_text())
    assert {path.stem for path in RESULTS.glob("*.jsonl")} == STORED.keys() == codes.keys()
    for stored in STORED.values():
        assert (ROOT / "benchmarks" / stored.script).is_file()
        assert f"benchmarks/{stored.script}" in stored.sources
        assert all((ROOT / source).exists() for source in stored.sources)
        assert codes[stored.name].keys() == set(stored.sources)
        assert f'made_by("{stored.name}")' in PAGES[stored.page].read_text()
        assert stored.command in made_by(stored.name)


def test_every_script_whose_numbers_a_page_shows_is_registered() -> None:
    """Mend with a row in STORED, or, if the numbers are typed into the page, in TYPED."""
    named = {(name, script) for name, page in PAGES.items() for script in re.findall(r"benchmarks/(\w+\.py)", page.read_text())}
    stored = {(one.page, one.script) for one in STORED.values()}
    typed = {(page, command) for page, commands in TYPED.items() for command in commands}
    reproduced = {(page, command) for page, command in typed if command.startswith("lethe reproduce ")}
    assert named - stored - _NO_NUMBERS == typed - reproduced
    for page, command in reproduced:
        name = command.removeprefix("lethe reproduce ")
        assert name in REPRODUCTIONS
        assert f"| `{name}`" in PAGES[page].read_text()


@pytest.mark.parametrize("stored", WITH_CELL, ids=lambda stored: stored.name)
def test_a_cell_is_one_row_and_a_number_that_is_off_is_found(stored: Stored) -> None:
    row = cell_of(stored, read_lines(stored.file))
    assert differences(stored, row, row) == {}
    for name in stored.numbers:
        for factor in (1.01 + 1.1 * stored.tolerance, 0.99 / (1.0 + 1.1 * stored.tolerance)):
            value = row[name]
            off = {key: factor * part for key, part in value.items()} if isinstance(value, dict) else factor * value
            assert differences(stored, row | {name: off}, row).keys() == {name}


def test_a_mutated_row_is_found_when_it_is_computed_again() -> None:
    pytest.importorskip("sklearn")
    stored = STORED["calibration"]
    rows = read_lines(stored.file)
    right = cell_of(stored, rows)
    rows[rows.index(right)] = mutated = right | {"log_loss": 1.01 * right["log_loss"]}
    again = recomputed(stored, rows)
    assert differences(stored, mutated, again).keys() == {"log_loss"}
    assert differences(stored, right, again) == {}


@pytest.mark.nightly(by_day="test_a_mutated_row_is_found_when_it_is_computed_again")
@pytest.mark.parametrize("stored", WITH_CELL, ids=lambda stored: stored.name)
def test_a_row_of_each_file_comes_out_again(stored: Stored) -> None:
    """LETHE_DATA: a folder with mnist.npz, which one cell needs."""
    folder = os.environ.get("LETHE_DATA")
    if stored.needs_mnist and not folder:
        pytest.skip("LETHE_DATA names no folder with mnist.npz")
    for module in ("sklearn", "torch", "pyarrow"):
        pytest.importorskip(module)
    rows = read_lines(stored.file)
    assert differences(stored, cell_of(stored, rows), recomputed(stored, rows, Path(folder or "") / "mnist.npz")) == {}


def test_the_code_is_noted_with_the_first_row_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.jsonl"
    append(file, {"test": 1.0})
    noted = json.loads((tmp_path / "code.json").read_text())
    assert noted == {"settings": {source: digest(source) for source in STORED["settings"].sources}}
    monkeypatch.setattr("stored_results.RESULTS", tmp_path)
    assert changed_sources("settings") == []
    assert made_by("settings").count("by the code as it is") == 1
    older = noted["settings"] | {"lethe/train": "of older code"}
    (tmp_path / "code.json").write_text(json.dumps({"settings": older}))
    append(file, {"test": 2.0})
    assert changed_sources("settings") == ["lethe/train"]
    assert "before changes in `train`" in made_by("settings")
    assert read_lines(file) == [{"test": 1.0}, {"test": 2.0}]


def test_a_digest_is_of_every_file_and_its_name(tmp_path: Path) -> None:
    (tmp_path / "package" / "inner").mkdir(parents=True)
    for name, text in (("package/a.py", "1"), ("package/inner/b.py", "2")):
        (tmp_path / name).write_text(text)

    def now() -> str:
        digest.cache_clear()
        return digest("package", tmp_path)

    seen = {now()}
    (tmp_path / "package/inner/b.py").write_text("3")
    seen.add(now())
    (tmp_path / "package/a.py").rename(tmp_path / "package/c.py")
    seen.add(now())
    assert len(seen) == 3
    digest.cache_clear()
