"""`ledger=` of trainings: reserved before a record is read, started before noise is drawn, settled with what was recorded."""

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.errors import BudgetExceededError, CallbackWarning, InputError, LedgerError, LetheError
from lethe.ledger import Budget, Ledger, Spending, spending

torch = pytest.importorskip("torch")

from doors import fit_linear  # noqa: E402
from torch import nn  # noqa: E402

from lethe.train import Callback, PrivacyEngine, TrainOptions, fit  # noqa: E402  # without torch there is nothing to import

RECORDS = 60
LOSS = nn.CrossEntropyLoss(reduction="none")


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    made.create("patients", neighbours="replace_one", budget=Budget(epsilon=3, delta=1e-4), by="keeper")
    return made


def states(ledger: Ledger) -> list[str]:
    return [line.state for line in ledger.show("patients").lines]


def run_of(**fields):
    loss = lethe.losses.Softmax(feature_norm=1.0)
    plain = {"records": RECORDS, "batches": lethe.batches.Cyclic(20), "passes": 2, "loss": loss, "noise_multiplier": 20.0}
    return make_run(**plain | {"clip_norm": None, "release": "last", "neighbours": "replace_one"} | fields)


def table() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0)
    return numbers.normal(size=(RECORDS, 3)), numbers.integers(0, 2, RECORDS)


def network():
    torch.manual_seed(0)
    inputs = torch.randn(RECORDS, 3)
    return nn.Linear(3, 2), (inputs, torch.arange(RECORDS) % 2)


def network_run(**fields):
    return run_of(loss={"kind": "unknown"}, clip_norm=1.0, release="all", **fields)


def test_the_same_training_every_night_is_reserved_and_settled_every_night(ledger) -> None:
    paid = Spending(ledger, "patients", by="team A", why="nightly")
    _, fitted = (fit_linear(run_of(), *table(), classes=2, ledger=paid) for _ in range(2))
    with spending(ledger, "patients"):
        fit_linear(run_of(), *table(), classes=2)
    one, two, _ = lines = ledger.show("patients").lines
    assert states(ledger) == ["settled"] * 3
    assert (two.by, two.why, two.artefact) == ("team A", "nightly", fitted.record.released[0].sha256)
    assert ledger.show("patients").counted.cost == sum(line.price.cost for line in lines)
    assert ledger.show("patients").epsilon_alone(one) >= lethe.certify(fitted.run, delta=1e-4).epsilon * (1 - 1e-9)
    ledger.verify()


def test_a_training_that_does_not_fit_reads_no_record(ledger) -> None:
    class Watched(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return RECORDS

        def __getitem__(self, place: int) -> None:
            raise AssertionError("a record was read")

    run, options = network_run(noise_multiplier=0.5), TrainOptions(ledger=Spending(ledger, "patients"))
    with pytest.raises(BudgetExceededError, match="you can still train once"):
        fit(network()[0], LOSS, Watched(), run, options=options)
    model, data = network()
    with pytest.raises(BudgetExceededError):
        PrivacyEngine(model, torch.optim.SGD(model.parameters(), lr=0.5), len, data, run, options=options)
    assert states(ledger) == []


def test_training_does_not_begin_without_its_ledger(ledger, tmp_path) -> None:
    paid = Spending(ledger, "patients")
    (tmp_path / "ledger.sqlite").write_bytes(b"no database any more, but a text of some length" * 40)
    model, data = network()
    before = model.weight.detach().clone()
    with pytest.raises(LedgerError):
        fit(model, LOSS, data, network_run(), options=TrainOptions(ledger=paid))
    assert torch.equal(before, model.weight)


def gone(*_: object, **__: object) -> None:
    raise LedgerError("the ledger is gone.")


class Objects(Callback):
    def on_train_begin(self, run, *, steps_done) -> None:
        raise ValueError("no")


def interrupted(step: int, steps: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "broken", "state"),
    [
        ({}, None, "voided"),  # a record less than the run says
        ({}, "void", "reserved"),  # what cannot be given back stays counted, and hides no error
        ({"callbacks": Objects()}, None, "voided"),
        ({"seed": 1}, None, "voided"),
        ({"progress": interrupted}, None, "started"),
    ],
)
def test_what_fails_before_the_first_step_is_given_back_and_later_stays_counted(options, broken, state, ledger, monkeypatch) -> None:
    if broken:
        monkeypatch.setattr(Ledger, broken, gone)
    features, targets = table()
    with pytest.raises((LetheError, ValueError, KeyboardInterrupt)) as caught:
        fit_linear(run_of(), features[: RECORDS - (not options)], targets, classes=2, ledger=Spending(ledger, "patients"), **options)
    assert not isinstance(caught.value, LedgerError)
    (line,) = ledger.show("patients").lines
    assert line.state == state
    assert ("before its first step" in line.reason) == (state == "voided")
    assert ledger.show("patients").counted == line.price


def test_a_process_that_began_within_a_block_and_knows_no_ledger_does_not_train(monkeypatch) -> None:
    monkeypatch.setenv("LETHE_SPENDING", "patients")
    with pytest.raises(InputError, match="would not be counted"):
        fit_linear(run_of(), *table(), classes=2)


def stopping(at: int):
    def stop(step: int, steps: int) -> None:
        if step == at:
            raise KeyboardInterrupt

    return stop


def by_fit(paid, folder, run, at):
    model, data = network()
    progress = stopping(at) if at else False
    return fit(model, LOSS, data, run, options=TrainOptions(progress=progress, ledger=paid, checkpoints=folder)).record


def by_loop(paid, folder, run, at):
    model, data = network()
    sgd = torch.optim.SGD(model.parameters(), lr=run.step_size)
    options = TrainOptions(ledger=paid, checkpoints=folder)
    engine = PrivacyEngine(model, sgd, lambda batch: LOSS(model(batch[0]), batch[1]), data, run, options=options)
    try:
        for batch in engine.batches():
            engine.backward(batch)
            sgd.step()
            stopping(at)(engine.steps, 0)
        engine.record()
        return engine.record()
    finally:
        engine.close()


def within(paid, folder, run, at):
    with spending(paid.ledger, paid.data_set, by=paid.by):
        return by_fit(None, folder, run, at)


@pytest.mark.parametrize(("train", "release"), [(by_fit, "all"), (by_fit, "last"), (by_loop, "all"), (within, "all"), (within, "last")])
def test_the_same_call_again_goes_on_under_its_own_reservation(train, release: str, ledger, tmp_path) -> None:
    def again(at: int = 0):
        return train(Spending(ledger, "patients", by="team A"), tmp_path / "saved", network_run().replace(release=release), at)

    for at in (3, 4):
        with pytest.raises(KeyboardInterrupt):
            again(at)
        assert states(ledger) == ["started"]
    trained = again()
    (line,) = ledger.show("patients").lines
    assert (line.state, line.artefact) == ("settled", trained.released[0].sha256)
    assert again().released[0].sha256 == line.artefact  # it gives the same model, and is paid for
    assert len(states(ledger)) == 1
    ledger.verify()


def test_a_training_that_could_not_be_settled_is_settled_by_the_same_call(ledger, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Ledger, "settle", gone)
    with pytest.warns(CallbackWarning, match="the ledger is gone"):
        by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
    monkeypatch.undo()
    by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
    assert states(ledger) == ["settled"]


def test_what_a_folder_says_of_its_reservation_is_checked(ledger, tmp_path) -> None:
    paid, saved = Spending(ledger, "patients"), tmp_path / "saved"
    with pytest.raises(KeyboardInterrupt):
        by_fit(paid, saved, network_run(), 3)
    (line,) = ledger.show("patients").lines
    head, receipt = (saved / "reservation").read_text().splitlines()
    assert (saved / "reservation").stat().st_mode & 0o077 == 0
    other = Ledger.open(tmp_path / "other.sqlite", make=True)
    other.create("patients", neighbours="replace_one", budget=Budget(epsilon=3, delta=1e-4), by="keeper")
    other.reserve("patients", lethe.guarantees.GDP(0.5), by="team B")  # of the same number
    ledger.create("visits", neighbours="replace_one", budget=Budget(epsilon=3, delta=1e-4), by="keeper")
    wrong = (
        (Spending(other, "patients"), receipt, "of another ledger"),
        (Spending(ledger, "visits"), receipt, "of another ledger or data set"),
        (Spending(ledger, "patients", reservation=line.number + 1), receipt, f"was begun under {line.number}"),
        *((paid, part, "of another ledger") for part in ("", "x", receipt[:-3], receipt.replace(" ", ""), f"99 {receipt.split()[1]}")),
    )
    for spender, said, words in wrong:
        (saved / "reservation").write_text(f"{head}\n{said}\n")
        with pytest.raises(InputError, match=words):
            by_fit(spender, saved, network_run(), 0)
    (saved / "reservation").write_text(f"{head}\n{receipt}\n")
    with pytest.raises(BudgetExceededError, match="more than was reserved"):
        by_fit(paid, saved, network_run(noise_multiplier=10.0), 0)
    assert ledger.show("visits").lines == ()
    by_fit(Spending(ledger, "patients", reservation=line.number), saved, network_run(), 0)
    assert states(ledger) == ["settled"]


def test_what_was_given_back_is_reserved_again_by_the_same_call(ledger, tmp_path, monkeypatch) -> None:
    for expected in (["voided"], ["voided", "reserved"]):
        monkeypatch.setattr(Ledger, "start", gone)
        if expected[1:]:
            monkeypatch.setattr(Ledger, "void", gone)  # killed in between, as it were
        with pytest.raises(LedgerError):
            by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
        assert states(ledger) == expected
        monkeypatch.undo()
    by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
    assert states(ledger) == ["voided", "settled"]


def test_a_reservation_that_was_made_before_pays_for_one_training_and_not_for_two(ledger) -> None:
    number = ledger.reserve("patients", lethe.certify(run_of(), delta=1e-4), by="team A").number
    paid = Spending(ledger, "patients", reservation=number)
    features, targets = table()
    with pytest.raises(LetheError):
        fit_linear(run_of(), features[:-1], targets, classes=2, ledger=paid)
    assert states(ledger) == ["reserved"]  # it is not this call's to give back
    with pytest.raises(KeyboardInterrupt):
        fit_linear(run_of(), features, targets, classes=2, progress=stopping(2), ledger=paid)
    with pytest.raises(InputError, match="noise may have been"):
        fit_linear(run_of(), features, targets, classes=2, ledger=paid)
    with pytest.raises(BudgetExceededError, match="more than was reserved"):
        fit_linear(run_of(noise_multiplier=10.0), features, targets, classes=2, ledger=paid)
    assert states(ledger) == ["started"]


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_rounding_adds_to_a_plan_of_hidden_iterates_was_reserved(ledger: Ledger, by_hand: bool) -> None:
    numbers, records, classes = np.random.default_rng(0), 6000, 10
    data = numbers.normal(size=(records, 200)), numbers.integers(classes, size=records)
    loss = lethe.losses.Softmax(feature_norm=1.0, classes=classes)
    run = lethe.plan(run_of(records=records, loss=loss, batches=lethe.batches.Cyclic(20), step_size=0.5), epsilon=1.0, delta=1e-5)
    number = ledger.reserve("patients", lethe.certify(run, delta=1e-5), by="team").number if by_hand else None
    fitted = fit_linear(run, *data, classes=classes, ledger=Spending(ledger, "patients", by="team", reservation=number))
    assert states(ledger) == ["settled"]
    assert lethe.certify(run, delta=1e-5).epsilon < lethe.certify(fitted, delta=1e-5).epsilon


def test_a_coarse_model_is_warned_of_and_told_to_be_trained_in_float64(ledger: Ledger) -> None:
    """mu = sqrt(T) 2 lambda G over the noise, with G = M u N/2 and N/2 = 100: the start, 100 moves of .5, and the noise."""
    width, records = 200, 6000
    shape = run_of(records=records, batches=lethe.batches.Cyclic(600), passes=10, step_size=0.5, clip_norm=1.0)
    run = lethe.plan(shape.replace(loss=lethe.losses.Convex(smoothness=0.5)), epsilon=1.0, delta=1e-5)
    data = torch.full((records, width), 0.01), torch.arange(records) % 10
    model, options = nn.Linear(width, 10), TrainOptions(ledger=Spending(ledger, "patients", by="team"))
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    with (
        pytest.warns(UserWarning, match=r"about mu = 0\.0032.*model\.double"),
        pytest.raises(BudgetExceededError, match=r"model\.double\(\)"),
    ):
        fit(model, LOSS, data, run, options=options)
    assert states(ledger) == ["voided"]
    fit(model.double(), LOSS, (data[0].double(), data[1]), run, options=options)
    assert states(ledger) == ["voided", "settled"]
