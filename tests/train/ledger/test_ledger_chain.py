"""The chain: a change of any value of any row is found, and what was cut off is found where the head was written down."""

import json
import random
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import make_run
from how_many import examples

import lethe
from lethe.errors import LedgerError, LetheError
from lethe.ledger import Budget, Ledger
from lethe.ledger.chain import Entry, canonical
from lethe.ledger.prices import Price
from lethe.ledger.tables import DERIVED_TABLES, ENTRIES, entry_of


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> str:
    """A ledger with an entry of every kind, and all of it in its one file."""
    file = str(tmp_path_factory.mktemp("chain") / "ledger.sqlite")
    ledger = Ledger.open(file, make=True)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=9, delta=1e-6), spenders=["team A", "team B"], by="keeper")
    ledger.create("visits", neighbours="zero_out", budget=Budget(rho=1.0), fingerprint="7f3a", by="keeper")
    ledger.admit("patients", "team C", by="keeper")
    certificate = lethe.certify(make_run(), delta=1e-6)
    first = ledger.reserve("patients", certificate, by="team A", why="a first model")
    second = ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="team B")
    third = ledger.reserve("visits", lethe.guarantees.ZCDP(0.1), by="team B")
    ledger.start(first)
    ledger.settle(first, certificate, artefact="b" * 64, by="team A")
    ledger.void(second, reason="never begun", by="team B")
    ledger.settle(third, lethe.guarantees.ZCDP(0.05), fixed_before="planned so", by="team B")
    ledger.verify()
    return file


@pytest.fixture
def copy(written, tmp_path) -> str:
    return shutil.copy(written, tmp_path / "copy.sqlite")


def change(file: str, statement: str, *values: object) -> None:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def flipped(value: object, random_bits: random.Random) -> object:
    """The value with one bit of one of its bytes changed, as SQLite would read it."""
    if isinstance(value, int):
        return value ^ (1 << random_bits.randrange(8))
    data = bytearray(str(value).encode())
    if not data:
        return "x"
    data[random_bits.randrange(len(data))] ^= 1 << random_bits.randrange(7)
    return data.decode()


def test_random_flips_of_stored_content_are_found(written, tmp_path) -> None:
    random_bits, found, count = random.Random(5), 0, examples(80)
    source = sqlite3.connect(written)
    tables = [table for table in (ENTRIES, *DERIVED_TABLES) if source.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]]
    for case in range(count):
        table = random_bits.choice(tables)
        column = random_bits.choice([one.name for one in table.columns])
        rows = source.execute(f"SELECT rowid, {column} FROM {table.name}").fetchall()
        row, value = random_bits.choice(rows)
        file = shutil.copy(written, tmp_path / "flipped.sqlite")
        new = flipped(value, random_bits)
        change(file, f"UPDATE OR REPLACE {table.name} SET {column} = ? WHERE rowid = ?", new, row)
        try:
            Ledger.open(file).verify()
        except LedgerError as error:
            found += "was changed" in str(error)
        else:
            raise AssertionError((case, table.name, column, value, new))
    source.close()
    assert found == count


def test_a_flipped_byte_of_the_file_is_found_or_changes_nothing(written, tmp_path) -> None:
    """Some bytes of a database file are of no row: free space, counters. Where nothing is found, all rows are as they were."""
    random_bits, noticed = random.Random(6), 0
    data, rows = bytearray(Path(written).read_bytes()), contents(written)
    times = examples(120)
    for _ in range(times):
        place = random_bits.randrange(len(data))
        changed = bytearray(data)
        changed[place] ^= 1 << random_bits.randrange(8)
        file = tmp_path / "flipped.sqlite"
        file.write_bytes(changed)
        for left_over in tmp_path.glob("flipped.sqlite-*"):
            left_over.unlink()
        try:
            Ledger.open(file).verify()
        except LetheError:
            noticed += 1
        else:
            assert contents(str(file)) == rows, place
    assert noticed > times // 24


def test_a_row_that_an_index_of_the_file_contradicts_is_found(written, tmp_path) -> None:
    """SQLite keeps what it says of releases twice, and answers from one of them."""
    data, said = Path(written).read_bytes(), b"patients" + b"b" * 64
    places = [place for place in range(len(data)) if data.startswith(said, place)]
    assert len(places) == 2
    for place in places:
        file = tmp_path / f"{place}.sqlite"
        file.write_bytes(data[: place + 20] + b"c" + data[place + 21 :])
        with pytest.raises(LedgerError, match=r"index|does not say what"):
            Ledger.open(file).verify()


def test_a_column_of_another_type_is_refused(written) -> None:
    connection = sqlite3.connect(written)
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM entries").fetchone())
    connection.close()
    entry_of(SimpleNamespace(**row))
    for column in ENTRIES.columns:
        for other in (None, b"1", 1.0):
            with pytest.raises(LedgerError, match=f"its {column.name} is of type {type(other).__name__}"):
                entry_of(SimpleNamespace(**{**row, column.name: other}))


def contents(file: str) -> list[object]:
    connection = sqlite3.connect(file)
    try:
        return [connection.execute(f"SELECT * FROM {table.name} ORDER BY 1, 2").fetchall() for table in (ENTRIES, *DERIVED_TABLES)]
    finally:
        connection.close()


def test_an_entry_that_is_taken_out_or_written_anew_is_found(copy) -> None:
    ledger = Ledger.open(copy)
    head = ledger.verify().head
    change(copy, "DELETE FROM releases WHERE entry = (SELECT max(entry) FROM releases)")
    with pytest.raises(LedgerError, match="table releases"):
        Ledger.open(copy).verify()
    change(copy, "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")
    # The chain up to there is whole: only who wrote its head down can tell.
    shorter = ledger.verify().head
    assert shorter != head
    with pytest.raises(LedgerError, match="written down"):
        ledger.verify(head=head)
    ledger.reserve("visits", lethe.guarantees.ZCDP(0.01), by="team A")
    assert ledger.verify(head=shorter).head != shorter


def test_a_chain_that_was_forged_with_right_digests_is_judged_by_its_certificates(written, tmp_path) -> None:
    """Whoever can write can compute digests; a price below that of its certificate is found all the same."""
    ledger = Ledger.open(tmp_path / "forged.sqlite", make=True)
    ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=1, delta=1e-6), by="keeper")
    ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    connection = sqlite3.connect(tmp_path / "forged.sqlite")
    seq, kind, at, data_set, _, slack, content, previous, _ = connection.execute("SELECT * FROM entries WHERE seq = 2").fetchone()
    said = json.loads(content)
    cheap = str(int(int(said["price"]["cost"]) * 0.99))
    said["price"]["cost"] = cheap
    counted = Price(int(cheap), int(slack))
    forged = Entry(seq=seq, kind=kind, at=at, data_set=data_set, counted=counted, content=canonical(said), previous=previous, digest="")
    values = (cheap, forged.content, forged.own_digest())
    connection.execute("UPDATE entries SET counted_cost = ?, content = ?, digest = ? WHERE seq = 2", values)
    connection.execute("UPDATE reservations SET cost = ?", (cheap,))
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="below that of its certificate"):
        ledger.verify()


def test_nothing_is_reserved_on_the_word_of_a_changed_entry(copy) -> None:
    change(copy, "UPDATE entries SET counted_cost = '0' WHERE seq = (SELECT max(seq) FROM entries WHERE data_set = 'patients')")
    ledger = Ledger.open(copy)
    with pytest.raises(LedgerError, match="was changed"):
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="team A")
