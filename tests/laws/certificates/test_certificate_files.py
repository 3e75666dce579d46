"""Certificates of every design through a file, and the bytes that a seal is over."""

from pathlib import Path

from helpers import DESIGNS, batches, make_run
from hypothesis import given
from hypothesis import strategies as st

import lethe
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


SETS = st.dictionaries(st.text(max_size=4), st.binary(max_size=6), min_size=1, max_size=3)


@given(SETS, SETS)
def test_two_sets_never_give_the_same_bytes(one: dict[str, bytes], two: dict[str, bytes]) -> None:
    first, second = ({name: RawTensor("uint8", (len(data),), data) for name, data in given.items()} for given in (one, two))
    same = b"".join(map(bytes, canonical_chunks(first))) == b"".join(map(bytes, canonical_chunks(second)))
    assert same == (one == two)
