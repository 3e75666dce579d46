"""Totals keep units of privacy apart: epsilons of records and of users do not add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import make_run

import lethe
from lethe.accounting.totals import Total
from lethe.calculus.guarantees import GDP
from lethe.certificates.certificate import Certificate
from lethe.errors import InputError


def _certificate(unit: str, **changes: Any) -> Certificate:
    fields = {
        "steps": 5,
        "step_size": 0.1,
        "noise_multiplier": 9.0,
        "loss": {"kind": "unknown"},
        "clip_norm": 1.0,
        "release": "all",
        **changes,
    }
    return lethe.certify(make_run(records=500, batches=lethe.batches.Full(), unit=unit, **fields), 1e-4)


@pytest.mark.slow
def test_certificates_of_users_add_up_as_those_of_records_do() -> None:
    of_users = lethe.total([_certificate("user"), _certificate("user", steps=7)], 1e-4)
    of_records = lethe.total([_certificate("record"), _certificate("record", steps=7)], 1e-4)
    assert of_users.epsilon == of_records.epsilon
    assert of_users.unit == "user"
    assert "replace one user, 2 releases together" in of_users.title
    assert "one person is one user" in of_users.declared[0]
    assert of_records.unit == "record"
    assert "unit" not in of_records.to_dict()


def test_units_are_not_mixed() -> None:
    with pytest.raises(InputError, match="different units of privacy"):
        lethe.total([_certificate("user"), _certificate("record")], 1e-4)
    for unit, other in (("user", "record"), ("record", "user")):
        with pytest.raises(InputError, match="different units of privacy"):
            lethe.total([_certificate(unit)], 1e-4, unit=other)
        assert lethe.total([_certificate(unit)], 1e-4, unit=unit).unit == unit


def test_numbers_without_a_unit_are_about_records_unless_it_is_said() -> None:
    with pytest.raises(InputError, match=r"(?s)different units.*unit='user'"):
        lethe.total([_certificate("user"), GDP(0.5)], 1e-4, neighbours="replace_one")
    found = lethe.total([_certificate("user"), GDP(0.5)], 1e-4, neighbours="replace_one", unit="user")
    assert found.unit == "user"
    assert any("replace_one of users, as the caller says" in line for line in found.declared)


def test_a_file_keeps_the_unit(tmp_path: Path) -> None:
    _certificate("user").save(tmp_path / "one.json")
    total = lethe.total([str(tmp_path / "one.json"), GDP(0.5)], 1e-4, neighbours="replace_one", unit="user")
    total.save(tmp_path / "total.json")
    again = Total.load(tmp_path / "total.json")
    assert (again.unit, again.epsilon) == ("user", total.epsilon)
    outer = lethe.total([str(tmp_path / "total.json"), _certificate("user", steps=3)], 1e-4, unit="user")
    assert outer.unit == "user"
    with pytest.raises(InputError, match="different units"):
        lethe.total([str(tmp_path / "total.json"), _certificate("record", steps=3)], 1e-4)


def test_a_total_that_lies_about_its_unit_is_refused() -> None:
    content = lethe.total([_certificate("user")], 1e-4).to_dict()
    for wrong in ("record", "household", None, 1):
        with pytest.raises(InputError, match="unit"):
            Total.from_dict({**content, "unit": wrong})
    with pytest.raises(InputError, match="unit"):
        Total.from_dict({key: value for key, value in content.items() if key != "unit"})


def test_an_accountant_of_events_takes_no_users() -> None:
    accounting = pytest.importorskip("dp_accounting.privacy_accountant")
    from lethe.integrations import dp_accounting as integration

    accountant = integration.LetheAccountant(accounting.NeighboringRelation.REPLACE_ONE)
    run = _certificate("user").run
    with pytest.raises(accounting.UnsupportedEventError, match="about users"):
        accountant.compose(integration.LastIterateDpEvent(run, "monday"))
    assert "the unit is one user" in integration.to_dp_event(_certificate("user")).note
