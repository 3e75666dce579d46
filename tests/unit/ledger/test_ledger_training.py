"""`ledger=` of trainings: reserved before a record is read, started before noise is drawn, settled with what was recorded."""

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.errors import BudgetExceededError, CallbackWarning, InputError, LedgerError, LetheError
from lethe.ledger import Budget, Ledger, Spending, spending

torch = pytest.importorskip("torch")

from doors import fit_linear  # noqa: E402

from lethe.train import Callback, PrivacyEngine, TrainOptions, fit  # noqa: E402  # without torch there is nothing to import

RECORDS = 60


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    made.create("patients", neighbours="replace_one", budget=Budget(epsilon=3, delta=1e-4), by="keeper")
    return made


def run_of(**fields):
    loss = lethe.losses.Softmax(feature_norm=1.0)
    plain = {
        "records": RECORDS,
        "batches": lethe.batches.Cyclic(20),
        "passes": 2,
        "loss": loss,
        "noise_multiplier": 20.0,
        "clip_norm": None,
    }
    return make_run(**plain | {"release": "last", "neighbours": "replace_one"} | fields)


def table() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0)
    return numbers.normal(size=(RECORDS, 3)), numbers.integers(0, 2, RECORDS)


def network(seed: int = 0):
    torch.manual_seed(seed)
    inputs = torch.randn(RECORDS, 3)
    return torch.nn.Linear(3, 2), (inputs, torch.arange(RECORDS) % 2)


def network_run(**fields):
    return run_of(loss={"kind": "unknown"}, clip_norm=1.0, release="all", **fields)


LOSS = torch.nn.CrossEntropyLoss(reduction="none")


@pytest.mark.slow
def test_a_linear_training_is_reserved_and_settled(ledger) -> None:
    fitted = fit_linear(run_of(), *table(), classes=2, ledger=Spending(ledger, "patients", by="team A", why="nightly"))
    (line,) = ledger.show("patients").lines
    assert (line.state, line.by, line.why) == ("settled", "team A", "nightly")
    assert line.artefact == fitted.record.released[0].sha256
    assert ledger.show("patients").epsilon() >= lethe.certify(fitted.run, delta=1e-4).epsilon * (1 - 1e-9)
    ledger.verify()


@pytest.mark.slow
def test_the_same_training_every_night_is_counted_every_night(ledger) -> None:
    for _ in range(2):
        fit_linear(run_of(), *table(), classes=2, ledger=Spending(ledger, "patients"))
    one, two = ledger.show("patients").lines
    assert ledger.show("patients").counted == one.price + two.price
    ledger.verify()


@pytest.mark.slow
def test_a_network_is_reserved_and_settled(ledger) -> None:
    model, data = network()
    fit(model, LOSS, data, network_run(), options=TrainOptions(ledger=Spending(ledger, "patients")))
    assert [line.state for line in ledger.show("patients").lines] == ["settled"]


def test_a_training_that_does_not_fit_reads_no_record(ledger) -> None:
    class Watched(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return RECORDS

        def __getitem__(self, place: int) -> None:
            raise AssertionError("a record was read")

    with pytest.raises(BudgetExceededError, match="still fits"):
        fit(network()[0], LOSS, Watched(), network_run(noise_multiplier=0.5), options=TrainOptions(ledger=Spending(ledger, "patients")))
    assert ledger.show("patients").lines == ()


def test_training_does_not_begin_without_its_ledger(ledger, tmp_path) -> None:
    spending = Spending(ledger, "patients")
    ledger._database.engine.dispose()
    (tmp_path / "ledger.sqlite").write_bytes(b"no database any more, but a text of some length" * 40)
    model, data = network()
    before = model.weight.detach().clone()
    with pytest.raises(LedgerError):
        fit(model, LOSS, data, network_run(), options=TrainOptions(ledger=spending))
    assert torch.equal(before, model.weight)


def test_what_fails_before_the_first_step_is_given_back(ledger) -> None:
    features, targets = table()
    with pytest.raises(LetheError):
        fit_linear(run_of(), features[:-1], targets, classes=2, ledger=Spending(ledger, "patients"))
    (line,) = ledger.show("patients").lines
    assert line.state == "voided"
    assert "before its first step" in line.reason
    assert ledger.show("patients").counted.cost == 0


def test_what_cannot_be_given_back_stays_counted_and_hides_no_error(ledger, monkeypatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise LedgerError("the ledger is gone.")

    monkeypatch.setattr(Ledger, "void", gone)
    features, targets = table()
    with pytest.raises(InputError):
        fit_linear(run_of(), features[:-1], targets, classes=2, ledger=Spending(ledger, "patients"))
    assert ledger.show("patients").lines[0].state == "reserved"


def test_what_fails_after_the_first_step_stays_counted(ledger) -> None:
    def broken(step: int, steps: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_linear(run_of(), *table(), classes=2, progress=broken, ledger=Spending(ledger, "patients"))
    (line,) = ledger.show("patients").lines
    assert line.state == "started"
    with pytest.raises(InputError, match="may have been"):
        ledger.void(line.number, reason="it was interrupted")
    assert ledger.show("patients").counted == line.price


def test_another_callback_that_objects_is_asked_first(ledger) -> None:
    class Objects(Callback):
        def on_train_begin(self, run, *, steps_done) -> None:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fit_linear(run_of(), *table(), classes=2, callbacks=Objects(), ledger=Spending(ledger, "patients"))
    assert ledger.show("patients").lines[0].state == "voided"


def test_a_seeded_training_is_paid_by_nothing(ledger) -> None:
    with pytest.raises(InputError, match="seed"):
        fit_linear(run_of(), *table(), classes=2, seed=1, ledger=Spending(ledger, "patients"))
    assert ledger.show("patients").lines[0].state == "voided"


def test_what_is_no_ledger_and_what_has_no_price_is_refused(ledger) -> None:
    with pytest.raises(InputError, match="Spending"):
        fit_linear(run_of(), *table(), classes=2, ledger=ledger)
    with pytest.raises(InputError, match="neighbours"):
        fit_linear(run_of(neighbours="zero_out"), *table(), classes=2, ledger=Spending(ledger, "patients"))
    with pytest.raises(InputError, match="no data set"):
        fit_linear(run_of(), *table(), classes=2, ledger=Spending(ledger, "patient"))
    assert ledger.show("patients").lines == ()


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
        return engine.record()
    finally:
        engine.close()


def within(paid, folder, run, at):
    with spending(paid.ledger, paid.data_set, by=paid.by):
        return by_fit(None, folder, run, at)


@pytest.mark.slow
@pytest.mark.parametrize(("train", "release"), [(by_fit, "all"), (by_fit, "last"), (by_loop, "all"), (within, "all"), (within, "last")])
def test_the_same_call_again_goes_on_under_its_own_reservation(train, release: str, ledger, tmp_path) -> None:
    def again(at: int = 0):
        return train(Spending(ledger, "patients", by="team A"), tmp_path / "saved", network_run().replace(release=release), at)

    for at in (3, 4):
        with pytest.raises(KeyboardInterrupt):
            again(at)
        (line,) = ledger.show("patients").lines
        assert line.state == "started"
    trained = again()
    (line,) = ledger.show("patients").lines
    assert (line.state, line.artefact) == ("settled", trained.released[0].sha256)
    assert again().released[0].sha256 == line.artefact  # it gives the same model, and is paid for
    assert len(ledger.show("patients").lines) == 1
    ledger.verify()


@pytest.mark.slow
def test_a_training_that_could_not_be_settled_is_settled_by_the_same_call(ledger, tmp_path, monkeypatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise LedgerError("the ledger is gone.")

    monkeypatch.setattr(Ledger, "settle", gone)
    with pytest.warns(CallbackWarning, match="the ledger is gone"):
        by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
    monkeypatch.undo()
    by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
    assert [line.state for line in ledger.show("patients").lines] == ["settled"]


@pytest.mark.slow
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
    assert [line.state for line in ledger.show("patients").lines] == ["settled"]
    ledger.verify()


@pytest.mark.slow
def test_a_folder_that_begins_anew_is_paid_anew(ledger, tmp_path) -> None:
    for again in (False, True):
        with pytest.raises(KeyboardInterrupt):
            by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 3)
        assert [line.state for line in ledger.show("patients").lines] == ["started"] * (1 + again)
        (tmp_path / "saved" / "journal").unlink()
        (tmp_path / "saved" / "checkpoint.pt").unlink()


@pytest.mark.slow
def test_a_folder_that_names_no_reservation_goes_on_under_a_new_one_or_the_one_given(ledger, tmp_path) -> None:
    for name, first in (("unpaid", None), ("older", Spending(ledger, "patients"))):
        with pytest.raises(KeyboardInterrupt):
            by_fit(first, tmp_path / name, network_run(), 3)
    (line,) = ledger.show("patients").lines
    (tmp_path / "older" / "reservation").unlink()
    by_fit(Spending(ledger, "patients", reservation=line.number), tmp_path / "older", network_run(), 0)
    by_fit(Spending(ledger, "patients"), tmp_path / "unpaid", network_run(), 0)
    assert [one.state for one in ledger.show("patients").lines] == ["settled", "settled"]


def test_what_was_given_back_is_reserved_again_by_the_same_call(ledger, tmp_path, monkeypatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise LedgerError("the ledger is gone.")

    for states in (["voided"], ["voided", "reserved"]):
        monkeypatch.setattr(Ledger, "start", gone)
        if states[1:]:
            monkeypatch.setattr(Ledger, "void", gone)  # killed in between, as it were
        with pytest.raises(LedgerError):
            by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
        assert [line.state for line in ledger.show("patients").lines] == states
        monkeypatch.undo()
    by_fit(Spending(ledger, "patients"), tmp_path / "saved", network_run(), 0)
    assert [line.state for line in ledger.show("patients").lines] == ["voided", "settled"]


def test_a_reservation_that_was_made_before_pays_for_one_training_and_not_for_two(ledger) -> None:
    number = ledger.reserve("patients", lethe.certify(run_of(), delta=1e-4), by="team A").number
    paid = Spending(ledger, "patients", reservation=number)
    features, targets = table()
    with pytest.raises(LetheError):
        fit_linear(run_of(), features[:-1], targets, classes=2, ledger=paid)
    assert ledger.show("patients").lines[0].state == "reserved"  # it is not this call's to give back
    with pytest.raises(KeyboardInterrupt):
        fit_linear(run_of(), features, targets, classes=2, progress=stopping(2), ledger=paid)
    with pytest.raises(InputError, match="its noise may have been released"):
        fit_linear(run_of(), features, targets, classes=2, ledger=paid)
    with pytest.raises(BudgetExceededError, match="more than was reserved"):
        fit_linear(run_of(noise_multiplier=10.0), features, targets, classes=2, ledger=paid)
    assert [line.state for line in ledger.show("patients").lines] == ["started"]


@pytest.mark.slow
def test_a_loop_of_ones_own_is_reserved_and_settled(ledger) -> None:
    model, data = network()
    optimizer, options = torch.optim.SGD(model.parameters(), lr=0.5), TrainOptions(ledger=Spending(ledger, "patients"))
    engine = PrivacyEngine(model, optimizer, lambda batch: LOSS(model(batch[0]), batch[1]), data, network_run(), options=options)
    assert ledger.show("patients").lines[0].state == "started"
    for batch in engine.batches():
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
    engine.record()
    engine.record()
    (line,) = ledger.show("patients").lines
    assert line.state == "settled"
    ledger.verify()


def test_a_loop_that_does_not_fit_is_not_begun(ledger) -> None:
    model, data = network()
    optimizer, options = torch.optim.SGD(model.parameters(), lr=0.5), TrainOptions(ledger=Spending(ledger, "patients"))
    with pytest.raises(BudgetExceededError):
        PrivacyEngine(model, optimizer, len, data, network_run(noise_multiplier=0.5), options=options)
    assert ledger.show("patients").lines == ()
