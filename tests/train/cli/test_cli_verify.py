"""`lethe verify` and `lethe key`: a table or JSON, and an exit status that scripts can rely on."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from seal_cases import DELTA, WEIGHTS, make_record, sealed_content, stranger
from typer.testing import CliRunner

import lethe
from lethe.certificates.keys import signing_key
from lethe.cli.app import app, main
from lethe.documents.strict import write_document

runner = CliRunner()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A sealed certificate and its weights, an unsealed one, other weights, and public keys."""
    write_document(tmp_path / "sealed.json", sealed_content())
    lethe.certify(make_run(), DELTA).save(tmp_path / "typed.json")
    lethe.certify(make_record(run=make_run(noise_multiplier=0.0)), DELTA).save(tmp_path / "open.json")
    lethe.certify(make_record(), 0.9, allow_large_delta=True).save(tmp_path / "large.json")
    np.savez(tmp_path / "weights.npz", **WEIGHTS)
    np.savez(tmp_path / "other.npz", **{**WEIGHTS, "intercept": np.zeros(2)})
    (tmp_path / "own.pem").write_text(signing_key().public.pem())
    (tmp_path / "other.pem").write_text(stranger().public.pem())
    (tmp_path / "no.json").write_text('{"epsilon": 1}')
    (tmp_path / "broken.npz").write_text("no archive")
    return {path.name: str(path) for path in tmp_path.iterdir()}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["sealed.json"], 0),
        (["sealed.json", "--weights", "weights.npz"], 0),
        (["sealed.json", "--weights", "weights.npz", "--key", "own.pem", "--max-epsilon", "10"], 0),
        (["sealed.json", "--weights", "other.npz"], 1),
        (["sealed.json", "--key", "other.pem"], 1),
        (["sealed.json", "--max-epsilon", "0.5"], 1),
        (["typed.json"], 1),
        (["open.json"], 1),
        (["large.json", "--max-epsilon", "10"], 1),
        (["large.json", "--max-epsilon", "10", "--allow-large-delta"], 0),
        (["no.json"], 2),
        (["nowhere.json"], 2),
        (["sealed.json", "--weights", "broken.npz"], 2),
        (["sealed.json", "--weights", "nowhere.npz"], 2),
        (["sealed.json", "--key", "sealed.json"], 2),
        (["sealed.json", "--max-epsilon", "-1"], 2),
        (["sealed.json", "--max-epsilon", "nan"], 2),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_the_exit_status_is_the_answer(
    files: dict[str, str],
    words: list[str],
    status: int,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [files.get(word, word) for word in words]
    monkeypatch.setattr(sys, "argv", ["lethe", "verify", *given, *(["--json"] if as_json else [])])
    with pytest.raises(SystemExit) as stop:
        main()
    assert int(stop.value.code or 0) == status
    said = capsys.readouterr()
    assert (said.out == "") == (status == 2)
    if status == 2:
        assert said.err.startswith("lethe: ")
        assert "Traceback" not in said.err
    elif as_json:
        assert json.loads(said.out)["yes"] is (status == 0)


def test_the_json_is_the_documented_object(files: dict[str, str]) -> None:
    words = ["verify", files["sealed.json"], "--weights", files["weights.npz"], "--json"]
    content: dict[str, Any] = json.loads(runner.invoke(app, words).stdout)
    assert set(content) == {"yes", "follows", "private", "sealed", "belongs", "within", "declared", "note"}
    assert all(set(content[name]) == {"yes", "why"} for name in ("follows", "private", "sealed", "belongs"))
    assert content["within"] is None
    assert [line.split(":")[0] for line in content["declared"]] == ["release", "start"]


def test_the_table_answers_each_question_in_a_line(files: dict[str, str]) -> None:
    words = ["verify", files["sealed.json"], "--weights", files["weights.npz"], "--max-epsilon", "3"]
    lines = runner.invoke(app, words, env={"COLUMNS": "200"}).stdout.splitlines()
    for question in ("follows from its run", "private", "sealed", "belongs to weights.npz", "epsilon at most 3"):
        assert any(line.split("  ")[0].strip() == question and " yes " in line for line in lines), question
    assert any(line.startswith("declared, and proved by nothing: release") for line in lines)


@pytest.mark.slow
def test_the_public_key_is_printed_and_written_and_the_private_one_never(tmp_path: Path) -> None:
    printed = runner.invoke(app, ["key"]).stdout
    assert printed == signing_key().public.pem()
    assert "PRIVATE" not in printed
    assert runner.invoke(app, ["key", "-o", str(tmp_path / "key.pem")]).exit_code == 0
    assert (tmp_path / "key.pem").read_text() == printed
    assert json.loads(runner.invoke(app, ["key", "--json"]).stdout) == {"fingerprint": signing_key().public.fingerprint, "pem": printed}


@pytest.mark.slow
def test_explain_believes_the_key_that_it_is_given(files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    alone = runner.invoke(app, ["explain", files["sealed.json"]]).stdout
    assert "declared   gradient bound" in alone
    assert "(the file says: enforced by lethe.train)" in alone
    told = runner.invoke(app, ["explain", files["sealed.json"], "--key", files["own.pem"]]).stdout
    assert "enforced   gradient bound" in told
    assert "the file says" not in told


@pytest.mark.slow
def test_explain_says_that_words_are_of_another_version(files: dict[str, str], tmp_path: Path) -> None:
    content = lethe.certify(make_run(), DELTA).to_dict() | {"lethe": "0.0.9"}
    content["citations"][0]["text"] = "Nobody 2031"
    write_document(tmp_path / "old.json", content)
    result = runner.invoke(app, ["explain", str(tmp_path / "old.json")])
    assert result.exit_code == 0
    assert "Nobody 2031" not in result.output
    assert "written by lethe 0.0.9, with the same numbers but other citations" in result.stderr
