"""What the command refuses: one message, without a traceback, nothing on standard output, and exit status 2; nothing is written."""

from pathlib import Path

import pytest
from audited_callables import described, place
from entry_point import status
from helpers import make_run

import lethe
from lethe.cli.pages import reproduce
from lethe.documents.strict import write_document

PLAN = "plan run.yaml --epsilon 1 --delta 1e-5"
LEDGER = "ledger create ledger.sqlite visits --neighbours zero_out"
WORDS: list[tuple[str, str]] = [
    ("certify broken.yaml --delta 1e-5 -o out.json", "stepsize: unknown key"),
    ("certify run.yaml --delta 2 -o out.json", "delta"),
    ("certify missing.yaml --delta 1e-5", "missing.yaml cannot be read"),
    ("certify run.yaml --delta 1e-5 --max-epsilon nan", "--max-epsilon: got"),
    ("certify run.yaml --delta 1e-5 --max-epsilon -1", "--max-epsilon: got"),
    ("certify run.yaml --delta 1e-5 -o out.txt", "needs to end in .json or .yaml"),
    ("compare run.yaml --delta 2 -o out", "delta"),
    ("compare run.yaml --delta 1e-5 -o nowhere/out", "nowhere is not a folder"),
    ("compare run.yaml --delta 1e-5 --values 1,2", "--values needs --over steps, passes or noise"),
    ("compare run.yaml --delta 1e-5 --over epsilon", "--over: got 'epsilon'"),
    ("compare run.yaml --delta 1e-5 --over noise --values 1,two", "--values: got '1,two'"),
    ("compare run.yaml --delta 1e-5 --over noise --values -1", "--values: one entry"),
    ("compare run.yaml --delta 1e-5 --over steps --values 1.5", "--values: got 1.5"),
    ("compare run.yaml --delta 1e-5 --over steps --values 30000000", "--values: at steps = 30000000"),
    ("compare silent.yaml --delta 1e-5", "--over noise --values 5,10,20"),
    ("compare silent.yaml --delta 1e-5 --over noise", "--over noise: the run has no noise"),
    ("compare listed.yaml --delta 1e-5 --over steps", "--over steps: noise_multiplier lists"),
    ("compare run.yaml --delta 1e-5 --theorems compositon", "--theorems: got 'compositon'"),
    ("plan run.yaml --epsilon -1 --delta 1e-5 -o out.json", "epsilon"),
    (f"{PLAN} --schedule best", "needs one of auto"),
    (f"{PLAN} --influence 0.9", "need --schedule"),
    (f"{PLAN} --schedule joint --influence -1", "greater than 0"),
    (f"{PLAN} --schedule joint --influence nowhere.json", "cannot be read"),
    (f"{PLAN} --schedule joint --floor -1", "floor"),
    (f"{PLAN} --plot noise.pdf", "needs to end in .png"),
    (f"{PLAN} -o nowhere/planned.yaml", "no folder you may write to"),
    ("explain run.yaml", "is a run, not a"),
    ("verify run.yaml", "is a run, not a"),
    ("verify nowhere.json", "cannot be read"),
    ("verify broken.json", "broken.json"),
    ("total broken.json", "it needs one of the two"),
    ("total broken.json --delta 1e-6 --epsilon 1", "it needs one of the two"),
    ("total broken.json --delta 1e-6 --count 1 --count 3", "--count: given 2 times for 1 files"),
    ("report run.yaml -o report.pdf", "needs to end in"),
    ("key -o mine.txt", "needs to end in .pem"),
    ("init softmax_hed", "did you mean 'softmax_head'"),
    ("init softmax_head --data t.csv --target y", "both are given"),
    ("init --data t.csv", "one is given without the other"),
    ("init --data missing.csv --target y", "cannot be read"),
    ("init --data t.npz --target y", "a table ends in"),
    ("init --look", "nothing to look at"),
    ("init -o out.yaml", "without anything to write"),
    ("init softmax_head -o out.txt", "needs to end in .yaml"),
    ("init softmax_head -o run.yaml", "exists already"),
    ("predict nowhere t.csv", "it holds no model.json"),
    ("predict nowhere t.csv -o out.txt", "needs to end in .csv"),
    ("audit wrong.yaml", "runz: unknown key"),
    ("audit audit.yaml --workers 0", "workers: got 0"),
    ("audit audit.yaml -o page.txt", "needs to end in .json or .yaml"),
    ("audit audit.yaml --plot audit.pdf", "needs to end in .png"),
    ("audit audit.yaml --report audit.png", "needs to end in .html"),
    ("ledger reserve ledger.sqlite patients", "one of these"),
    ("ledger reserve ledger.sqlite patients --mu 0.1 --rho 0.1", "one of these"),
    ("ledger reserve ledger.sqlite patients --epsilon 0.1", "one of these"),
    ("ledger reserve ledger.sqlite visits --mu 0.1", "no data set"),
    ("ledger reserve none.sqlite patients --mu 0.1", "is not there"),
    ("ledger settle ledger.sqlite 9 --mu 0.1", "no reservation"),
    (f"{LEDGER}", "one budget"),
    (f"{LEDGER} --mu 1 --unit family", "unit"),
    (f"{LEDGER.replace('visits', 'patients')} --mu 1", "already"),
    ("ledger export ledger.sqlite -o page.pdf", ".html"),
    ("ledger show ledger.sqlite --plot page.pdf", ".png"),
    ("reproduce bok-table-9", "'bok-table-9'"),
    ("reproduce bok-table-9 --list", "'bok-table-9'"),
    ("reproduce bok-table-7 -o nowhere/out", "nowhere is not a folder"),
    ("reproduce bok-table-7 --repeats 3", "--repeats: bok-table-7 takes no such options"),
    ("reproduce hong-figure-1 --list --repeats 3", "--repeats: given where nothing is computed"),
    ("reproduce hong-figure-1 --data absent.npz", "absent.npz"),
    ("reproduce hong-figure-1 --list -o out", "-o: given with --list"),
    ("reproduce -o out", "-o: given without anything to reproduce"),
    ("studio nowhere.yaml --no-browser", "nowhere.yaml cannot be read"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that words name."""
    place(tmp_path, monkeypatch)
    make_run().save("run.yaml")
    make_run(noise_multiplier=None).save("silent.yaml")
    make_run(noise_multiplier=[5.0] * 50).save("listed.yaml")
    Path("broken.yaml").write_text(Path("run.yaml").read_text().replace("step_size", "stepsize"))
    Path("broken.json").write_text('{"epsilon": 1}')
    write_document("audit.yaml", described())
    write_document("wrong.yaml", described(runz=3))
    return tmp_path


@pytest.mark.parametrize(("words", "message"), WORDS)
def test_words_without_a_meaning(
    folder: Path, words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "ledger.sqlite" in words:
        pytest.importorskip("sqlalchemy")
        from lethe.ledger import Budget, Ledger

        ledger = Ledger.open("ledger.sqlite", make=True)
        ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=3.0, delta=1e-6))
    before = sorted(folder.rglob("*"))
    assert status(*words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lethe: ")
    assert message in captured.err, captured.err
    assert "Traceback" not in captured.err
    assert sorted(file for file in folder.rglob("*") if "__pycache__" not in file.parts) == before


@pytest.mark.parametrize(
    ("verb", "words", "work"),
    [
        ("certify", ["certify", "run.yaml", "--delta", "1e-5"], "lethe.cli.runs.certify_run"),
        ("compare", ["compare", "run.yaml", "--delta", "1e-5", "--over", "noise", "-o", "out"], "lethe.cli.runs.compare_theorems"),
    ],
)
def test_interrupting_is_not_a_traceback_and_leaves_nothing(
    folder: Path, verb: str, words: list[str], work: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(work, interrupt)
    assert status(*words) == 130
    assert capsys.readouterr().err == "lethe: interrupted; nothing was written.\n"
    assert not (folder / "out").exists()


def test_an_installed_package_says_where_the_figures_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.cli.pages.find_spec", lambda name: None)
    with pytest.raises(lethe.MissingExtraError, match="clone the repository"):
        reproduce(listing=True)
