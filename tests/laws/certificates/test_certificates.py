"""Certificates of every design through a file, numbers of other versions, and the bytes that a seal is over."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import DESIGNS, batches, make_run
from hypothesis import given
from hypothesis import strategies as st
from seal_cases import DELTA

import lethe
from lethe.accounting.recheck import recheck, words_differ
from lethe.certificates.weights import RawTensor, canonical_chunks
from lethe.documents.strict import read_document


def test_certificates_survive_a_file(tmp_path: Path) -> None:
    for design in DESIGNS:
        certificate = lethe.certify(make_run(batches=batches(design, 10), passes=2, noise_multiplier=3.0), 1e-5)
        certificate.save(tmp_path / "certificate.json")
        again = lethe.Certificate.load(tmp_path / "certificate.json")
        assert again.epsilon == certificate.epsilon
        assert again.epsilon_at(1e-7) == certificate.epsilon_at(1e-7)  # bit for bit
        assert again.delta_at(1.0) == certificate.delta_at(1.0)
        assert again.run == certificate.run
        assert again.explain() == certificate.explain()
        assert read_document(tmp_path / "certificate.json")["epsilon"] == certificate.epsilon


def test_words_of_another_version_are_told_from_altered_numbers() -> None:
    content = {**json.loads(json.dumps(lethe.certify(make_run(), DELTA).to_dict())), "lethe": "0.0.9"}
    content["hypotheses"][0]["detail"] = "only the end of it is published"
    content["citations"][0]["text"] = "Feldman et al."
    old = lethe.Certificate.from_dict(copy.deepcopy(content))
    again = recheck(old)
    assert again == lethe.certify(make_run(), DELTA)  # in this version's words
    assert "written by lethe 0.0.9, with the same numbers but other reasons, citations" in words_differ(old, again)
    assert words_differ(again, again) == ""
    for path, value in ((("epsilon",), 1.0), (("lipschitz", "constant"), 1.5), (("others", 4, "epsilon"), 1.0)):
        changed: Any = copy.deepcopy(content)
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        with pytest.raises(lethe.InputError, match=r"follows|guarantee gives"):
            recheck(lethe.Certificate.from_dict(changed))
    smaller = lethe.guarantees.GDP(0.9 * old.guarantee.mu)  # pyright: ignore[reportAttributeAccessIssue]
    larger = lethe.guarantees.GDP(1.1 * old.guarantee.mu)  # pyright: ignore[reportAttributeAccessIssue]
    for guarantee in (smaller, larger):
        forged = {**content, "guarantee": guarantee.to_dict(), "epsilon": guarantee.epsilon(DELTA)}
        with pytest.raises(lethe.InputError, match="another version may prove other numbers"):
            recheck(lethe.Certificate.from_dict(forged))


SETS = st.dictionaries(st.text(max_size=4), st.binary(max_size=6), min_size=1, max_size=3)


@given(SETS, SETS)
def test_two_sets_never_give_the_same_bytes(one: dict[str, bytes], two: dict[str, bytes]) -> None:
    first, second = ({name: RawTensor("uint8", (len(data),), data) for name, data in given.items()} for given in (one, two))
    same = b"".join(map(bytes, canonical_chunks(first))) == b"".join(map(bytes, canonical_chunks(second)))
    assert same == (one == two)
