"""What `lethe train` writes of an estimator that released more than a run: a sealed statement, and what nobody can make of it."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from homes import homes_fields
from typer.testing import CliRunner

import lethe
from lethe.accounting.recheck import recheck_statement
from lethe.certificates.keys import signing_key
from lethe.certificates.statement import Statement
from lethe.cli.app import app
from lethe.documents.strict import write_document


def called(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two fits with the default, which centres and whitens rows first, and one that is a run and nothing else."""
    base = tmp_path_factory.mktemp("trained")
    folders: dict[str, Path] = {}
    for name, model in {"one": {}, "two": {}, "run": {"mechanism": "cyclic", "passes": 2}}.items():
        fields = homes_fields(base)
        write_document(base / f"{name}.yaml", {**fields, "model": {**fields["model"], **model}})
        done = called("train", base / f"{name}.yaml", "-o", base / name)
        assert done.exit_code == 0, done.output
        folders[name] = base / name
    (base / "own.pem").write_text(signing_key().public.pem())
    return {**folders, "key": base / "own.pem"}


def content_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "certificate.json").read_text())


def test_it_verifies_for_its_weights_and_no_others(trained: dict[str, Path]) -> None:
    proof = trained["one"] / "certificate.json"
    assert content_of(trained["one"])["kind"] == "statement"
    said = called("verify", proof, "--weights", trained["one"] / "weights.npz", "--max-epsilon", 5, "--json")
    answers = json.loads(said.stdout)
    assert said.exit_code == 0
    assert [answers[name]["yes"] for name in ("follows", "private", "sealed", "belongs", "within")] == [True] * 5
    assert "this installation's key" in answers["sealed"]["why"]
    assert [line.partition(":")[0] for line in answers["declared"]] == ["columns"]  # within the seal, and still declared
    read = Statement.load(proof)
    assert {one.by for one in read.findings if one.evidence == "enforced"} == {"lethe.estimators"}
    assert "fresh noise" in {one.name for one in read.findings if one.evidence == "enforced"}
    assert called("explain", proof).stdout.count("\n    sealed     by ed25519:") == 1
    for weights in (trained["two"] / "weights.npz", trained["run"] / "weights.npz"):
        other = called("verify", proof, "--weights", weights, "--json")
        assert other.exit_code == 1
        assert not json.loads(other.stdout)["belongs"]["yes"]
        assert json.loads(other.stdout)["sealed"]["yes"]


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands; in lists of many entries the first two."""
    if at:
        yield at
    entries = content.items() if isinstance(content, dict) else enumerate(content[:2]) if isinstance(content, list) else ()
    for key, value in entries:
        if key != "seal":
            yield from places(value, (*at, key))


def another(value: Any) -> Any:
    """Something of the same kind that is a little different."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value * (1 + 1e-9) or 1e-9
    if isinstance(value, dict):
        return {**value, "extra": 1}
    return f"{value} " if isinstance(value, str) else 1 if value is None else [*value, *value] or [1]


def test_no_entry_of_it_can_be_altered_or_left_out(trained: dict[str, Path]) -> None:
    content, refused, told = content_of(trained["one"]), 0, 0
    assert Statement.from_dict(content).seal.holds  # pyright: ignore[reportOptionalMemberAccess]
    for at in places(content):
        for drop in (False, True):
            changed = copy.deepcopy(content)
            inner: Any = changed
            for key in at[:-1]:
                inner = inner[key]
            if drop:
                del inner[at[-1]]
            else:
                inner[at[-1]] = another(inner[at[-1]])
            try:
                read = Statement.from_dict(changed)
            except lethe.InputError:
                refused += 1
                continue
            assert read.seal is not None
            assert read.seal.flaw == "over another statement than this one", at
            assert "enforced" not in {one.evidence for one in read.findings}
            told += 1
    assert told > 100
    assert refused > 50


def test_parts_cannot_be_moved_or_sealed_by_themselves(trained: dict[str, Path]) -> None:
    content = content_of(trained["one"])
    parts = content["derivation"]["parts"]
    assert len(parts) == 2
    for listed in (parts[:1], parts[::-1], [*parts, parts[0]]):
        read = Statement.from_dict({**content, "derivation": {**content["derivation"], "parts": listed}})
        with pytest.raises(lethe.InputError, match="over another statement"):
            recheck_statement(read)
    parts[0]["seal"] = content["seal"]
    with pytest.raises(lethe.InputError, match="'seal' is no part of one"):
        Statement.from_dict(content)


def test_totals_and_reports_take_it_as_it_is(trained: dict[str, Path], tmp_path: Path) -> None:
    one, two = (trained[name] / "certificate.json" for name in ("one", "two"))
    total = lethe.total([one, two], 1e-5)
    total.save(tmp_path / "total.json")
    assert [part.sealed for part in total.parts] == [True, True]
    assert total.parts[0].content == content_of(trained["one"])
    assert lethe.verify(tmp_path / "total.json").yes
    unsealed = {key: value for key, value in content_of(trained["two"]).items() if key != "seal"}
    write_document(tmp_path / "unsealed.json", unsealed)
    mixed = lethe.verify(lethe.total([one, tmp_path / "unsealed.json"], 1e-5))
    assert not mixed.sealed.yes
    assert mixed.sealed.why.endswith("unsealed.json")
    page = json.loads(called("report", trained["one"], "--json").stdout)
    assert (page["sealed"], page["statement"]) == (True, content_of(trained["one"]))
    assert "key of the seal" in page["sections"]["provenance"]["digests"]
    assert "Noise and secret draws came from fresh entropy" in page["sections"]["provenance"]["randomness"]
    other = json.loads(called("report", trained["one"], "--weights", trained["two"] / "weights.npz", "--json").stdout)
    assert "OTHER WEIGHTS" in {notice["heading"] for notice in other["notices"]}
    assert json.loads(called("report", tmp_path / "unsealed.json", "--json").stdout)["sealed"] is False
