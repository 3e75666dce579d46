"""What the documentation says is run: the README's example, the lists of theorems and verbs, the fields of a run."""

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from repository import ROOT

import lethe
from lethe.accounting.totals import Total
from lethe.run.batches import DESIGNS
from lethe.run.losses import LOSSES
from lethe.run.regularisers import REGULARISERS
from lethe.theorems.registry import ALL


def test_the_readme_s_certificate_is_the_one_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(_examples()[2], "README.md", "exec"), {})
    *certificate, everything = capsys.readouterr().out.splitlines()
    (block,) = re.findall(r"\n    (\(0.*?)\n +\.\.\.\n", (ROOT / "README.md").read_text(), flags=re.S)
    shown = block.split("\n    ")
    assert shown == [line for line in certificate if line in shown]  # in this order
    assert shown[:2] == certificate[:2]
    assert len(shown) > 3
    assert float(everything.partition(":")[2]) == pytest.approx(1.99, abs=5e-3)


def test_the_readme_s_models_learn_and_say_how_private_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    names: dict[str, object] = {}
    for example in _examples()[:2]:
        exec(compile(example, "README.md", "exec"), names)
    accuracy, report, network = re.fullmatch(
        r"accuracy (\S+)\n(.*)(Sequential trained by .*)", capsys.readouterr().out, flags=re.S
    ).groups()
    assert float(accuracy) > 0.8
    assert report.startswith("(3, 1e-05)-DP for one record's contribution set to zero")
    assert "declared" not in report
    assert "(3, 1e-05)-DP, add or remove one, every iterate." in network


def test_four_lines_of_the_readme_s_loop_change() -> None:
    torch = pytest.importorskip("torch")
    import lethe.train

    (loop,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert sum(line.startswith("+") for line in loop.splitlines()) <= 4
    network, criterion = torch.nn.Linear(4, 2), torch.nn.CrossEntropyLoss(reduction="none")
    data = torch.utils.data.TensorDataset(torch.randn(60, 4), torch.arange(60) % 2)
    names: dict[str, Any] = {"lethe": lethe, "network": network, "loader": torch.utils.data.DataLoader(data, batch_size=20)}
    names["optimizer"] = torch.optim.AdamW(network.parameters())
    names["losses"] = lambda batch: criterion(network(batch[0]), batch[1])
    for sign in "-+":  # without privacy, and with it
        exec(compile("\n".join(line[1:] for line in loop.splitlines() if line[0] in (" ", sign)), "README.md", "exec"), names)
    assert names["engine"].epsilon() == pytest.approx(3.0, abs=1e-3)


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    assert len(text.split()) <= 900
    lengths = [sum(bool(line.strip()) for line in example.splitlines()) for example in _examples()]
    assert max(lengths) <= 10
    assert lengths[1] <= 8


def test_the_landing_page_has_one_picture_and_three_short_examples() -> None:
    page = (ROOT / "docs" / "index.md").read_text()
    blocks = re.findall(r"```python.*?\n(.*?)```", page, flags=re.S)
    assert page.count("](pictures/") == 1
    assert len(blocks) == 3
    assert max(len(block.strip().splitlines()) for block in blocks) <= 8
    assert len(page.split()) <= 300


def test_the_glossary_names_what_exists_and_the_code_keeps_to_it() -> None:
    page, names = (ROOT / "docs" / "glossary.md").read_text(), set()
    for path in ROOT.glob("lethe/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    banned = {word for words in re.findall(r"\(not ([^)]*)\)", page) for word in re.findall(r"`(\w+)`", words)}
    assert len(banned) >= 4
    assert banned & names == set()
    words = {re.split(r"\W", word)[0] for word in re.findall(r"`([^`]+)`", page)} - banned - {"lethe"}
    assert words - names == set()


def _examples() -> list[str]:
    """A model, a network that goes on from it, a certificate."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert len(examples) == 3
    return examples


def test_the_page_of_theorems_is_made_of_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r'```python exec="on"\n(.*?)```', (ROOT / "docs" / "theorems.md").read_text(), flags=re.S)
    exec(compile(block, "theorems.md", "exec"), {})
    page = capsys.readouterr().out
    for theorem in ALL:
        assert page.count(f"\n### `{theorem.name}`\n\n{theorem.statement}") == 1
        assert all(f"\n- {citation.text}\n" in page for citation in theorem.citations)


def test_every_file_that_the_theory_names_exists() -> None:
    files = set(re.findall(r"`((?:lethe|tests)/[\w/.]+)`", (ROOT / "docs" / "theory.md").read_text()))
    assert len(files) > 60
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_every_word_of_a_run_is_documented() -> None:
    page = (ROOT / "docs" / "certify.md").read_text()
    for name in (*lethe.Run.model_fields, *DESIGNS, *LOSSES, *REGULARISERS):
        assert name in page


def test_the_page_of_samplers_is_the_table_that_refuses_them() -> None:
    pytest.importorskip("torch")
    from lethe.train.data.foreign_order import READINGS

    page = (ROOT / "docs" / "choose" / "samplers.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")][1:]
    answers: dict[str, set[str]] = {}
    for _, classes, proved, _, given in rows:
        assert set(re.findall(r"`([A-Z]\w+)`", proved)) <= set(lethe.batches.__all__)
        for name in re.findall(r"`(\w+\.\w+)`", classes):
            answers.setdefault(name, set()).add(given.partition(":")[0])
    assert answers.pop("torch.RandomSampler") == {"taken", "refused"}  # with replacement
    taken = {name: {"taken" if reading.instead is None else "refused"} for name, reading in READINGS.items()}
    assert answers == {name: answer for name, answer in taken.items() if name != "torch.RandomSampler"}


def test_the_bounds_that_the_page_of_solvers_names_can_be_imported() -> None:
    names = set(re.findall(r"`(lethe\.heavy_tailed(?:\.\w+)+)`", (ROOT / "docs" / "solvers.md").read_text()))
    assert len([name for name in names if name.endswith("_bound")]) == 4
    assert all(resolve_name(name) for name in names)


def test_the_schema_on_the_page_is_a_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "certify.md").read_text()
    (tmp_path / "run.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, flags=re.S)[0])
    assert lethe.Run.load(tmp_path / "run.yaml").total_steps == 2000


def test_the_total_on_the_page_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "certify.md").read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, flags=re.S)[0])
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    names: dict[str, object] = {"lethe": lethe, "run": lethe.Run.load("run.yaml")}
    exec(compile(example, "certify.md", "exec"), names)
    assert "4 releases together" in capsys.readouterr().out
    assert Total.load("total.json") == names["together"]


def test_the_training_configuration_on_the_page_is_one() -> None:
    pytest.importorskip("torch")
    import yaml

    from lethe.jobs.training import Job

    page = (ROOT / "docs" / "train_file.md").read_text()
    table, run = (yaml.safe_load(block.replace("1e-5", "1.0e-5")) for block in re.findall(r"```yaml\n(.*?)```", page, flags=re.S))
    assert Job(**run).data.classes == ("cat", "dog", "fish")
    columns = Job(**table).columns
    assert columns is not None
    assert columns.feature_names[:6] == ["age", "hours", "savings", "admitted", "retired", "work=Private"]
    assert columns.feature_names[-1] == "work=Self-employed, alone"


def test_every_word_of_a_training_is_documented() -> None:
    pytest.importorskip("torch")
    from lethe.train import TrainOptions, fit

    page = (ROOT / "docs" / "train.md").read_text()
    words = page[page.index("| word |") : page.index("## What an epoch is")]
    for name in (*inspect.signature(fit).parameters, *(field.name for field in fields(TrainOptions))):
        assert re.search(rf"^\| .*`{name}`.* \|", words, flags=re.M), name


def test_the_page_on_schedules_runs_and_its_policy_stays_within_its_budget(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "schedules.md").read_text(), flags=re.S)
    assert len(examples) == 3
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "schedules.md", "exec"), names)
    uniform, spread, epsilon, spent = map(float, capsys.readouterr().out.split())
    assert 1 < uniform < spread < 1000
    assert 0 < spent <= 0.2
    assert epsilon == pytest.approx(lethe.guarantees.ZCDP(0.2).epsilon(1e-5), rel=1e-6)
