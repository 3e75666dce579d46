"""Documents and array files made to hurt: each gets one clear error, at once, and no memory."""

import json
import resource
import zipfile
from collections.abc import Callable
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from how_many import examples

import lethe
from lethe.documents.strict import read_document, write_document
from lethe.jobs.datasets import load_table

FIELDS = ("step_size", "noise_multiplier", "batches", "loss", "regulariser", "records")


def _bomb(field: str) -> str:
    """Nine aliases of nine aliases of ...: a billion entries in 430 letters."""
    lines = ["a: &a [1,1,1,1,1,1,1,1,1]"]
    lines += [f"{new}: &{new} [{','.join(['*' + old] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join((*lines, f"{field}: *i"))


@pytest.mark.parametrize("field", FIELDS)
def test_aliases_are_refused_before_they_grow(field: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(_bomb(field))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(lethe.InputError, match=r"line 1 has an anchor \(&name\) or an alias"):
        lethe.Run.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_value_that_stands_twice_is_written_twice(tmp_path: Path) -> None:
    path, values = tmp_path / "twice.yaml", [0.5, 0.25]
    write_document(path, {"one": values, "other": values})
    assert "*" not in path.read_text()
    assert read_document(path) == {"one": values, "other": values}


@pytest.mark.parametrize("field", ["records", "passes", "steps"])
@pytest.mark.parametrize("digits", [20, 320, 5000])
def test_numbers_of_many_digits_are_refused(field: str, digits: int) -> None:
    fields = {
        "records": 100,
        "batches": {"design": "cyclic", "size": 10},
        "step_size": 0.5,
        "clip_norm": 1.0,
        "release": "last",
        "neighbours": "replace_one",
    }
    fields |= {field: 10**digits} if field != "records" else {"records": 10**digits, "passes": 1}
    with pytest.raises(lethe.InputError, match=field):
        lethe.Run(**fields)


def _npz(path: Path) -> bytes:
    np.savez(path, x=np.arange(12.0).reshape(4, 3), y=np.array([0, 1, 0, 1]))
    return path.read_bytes()


@pytest.mark.parametrize("path", [("epsilon",), ("delta",), ("lipschitz", "constant"), ("others", 1, "epsilon"), ("guarantee", "mu")])
@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_beyond_every_float_are_refused_in_certificates(path: tuple[Any, ...], sign: int, tmp_path: Path) -> None:
    content: Any = json.loads(json.dumps(lethe.certify(make_run(), 1e-5).to_dict()))
    place = content
    for key in path[:-1]:
        place = place[key]
    assert path[-1] in place
    place[path[-1]] = sign * 10**400
    (tmp_path / "certificate.json").write_text(json.dumps(content))
    with pytest.raises(lethe.InputError):
        lethe.Certificate.load(tmp_path / "certificate.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"regulariser": {"kind": "box", "half_width": 1.0, "dimension": None}},
        {"noise_multiplier": {"schedule": "step", "first": 1.0, "factor": 0.5, "period": None}},
        {"step_size": {"schedule": "polynomial", "first": 1.0, "last": 0.5, "power": 1.0, "period": None}},
        {"step_size": {"schedule": "repeated", "every": None, "of": 1.0}},
    ],
    ids=["box", "step", "polynomial", "repeated"],
)
@pytest.mark.parametrize("number", [10**16, 10**20, 10**400], ids=["1e16", "1e20", "1e400"])
def test_whole_numbers_of_any_size_are_refused_where_a_run_is_read(changes: dict[str, dict[str, Any]], number: int) -> None:
    ((name, fields),) = changes.items()
    document = {**make_run().to_document(), name: {key: number if value is None else value for key, value in fields.items()}}
    with pytest.raises(lethe.InputError, match=name):
        lethe.Run.from_document(document)


@pytest.mark.parametrize("text", ["!!timestamp 2001", "!!float", "!!int", "!!bool maybe", "!!float abc", "!!binary é", "!!omap x"])
@pytest.mark.parametrize("key", ["seeded", "noise_multiplier", "x"])
def test_tags_that_do_not_fit_their_text_are_refused(text: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    make_run().save(path)
    kept = [line for line in path.read_text().splitlines() if not line.startswith(key)]
    path.write_text("\n".join([*kept, f"{key}: {text}", ""]))
    with pytest.raises(lethe.InputError):
        lethe.Run.load(path)


@pytest.mark.parametrize("number", [10**5000, -(10**5000), Fraction(10**5000)], ids=["large", "negative", "ratio"])
@pytest.mark.parametrize(
    "door",
    [
        lambda number: lethe.certify(make_run(), number),
        lambda number: lethe.plan(make_run(), number, 1e-5),
        lambda number: lethe.guarantees.GDP(-abs(number)),
        lambda number: lethe.guarantees.GDPMixture((number,), (1.0, 1.0)),
        lambda number: lethe.compare(make_run(), 1e-5, over="noise", values=[number]),
        lambda number: make_run().with_noise_scaled(-abs(number)),
        lambda number: make_run(records=number),
        lambda number: lethe.certify(make_run(), 1e-5, theorems=[number]),
    ],
)
def test_a_number_too_long_to_be_written_is_refused_all_the_same(door: Callable[[Any], object], number: Any) -> None:
    with pytest.raises(lethe.LetheError):
        door(number)


def test_a_header_that_claims_a_million_million_rows(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", buffer.getvalue() + bytes(96))
    with pytest.raises(lethe.InputError, match="cannot be read"):
        load_table(path)


def test_flipped_bits_give_a_table_or_one_error(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    whole, generator = _npz(path), np.random.default_rng(5)
    refused = 0
    for place in generator.integers(0, 8 * len(whole), size=examples(200)).tolist():
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        try:
            load_table(path)
        except lethe.InputError:
            refused += 1
    assert refused > examples(200) // 6
