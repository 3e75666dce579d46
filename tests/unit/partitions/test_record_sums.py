"""The bound on rows, from which every mechanism on blocks has its sensitivity: a hair beyond it nothing is summed."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from lethe.errors import InputError, LetheError
from lethe.partitions import array_table
from lethe.partitions.block import Block
from lethe.partitions.record_sums import Chunks, RecordSums


def scaled(block: Block, length: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield np.full((len(block.features), 1), length), np.zeros(len(block.features))


def total(chunks: Chunks) -> tuple[np.ndarray]:
    return (np.array(sum(rows.sum() for rows, _ in chunks)),)


def nothing(block: Block) -> None:
    """Of what the first pass looks for."""


def sums(length: float) -> RecordSums:
    table, _ = array_table(np.ones((6, 1)), np.zeros(6), blocks=2).examined(nothing)
    return RecordSums(table=table, prepare=partial(scaled, length=length), columns=1, norm=1.0)


def test_a_row_half_a_per_cent_too_long_ends_the_pass() -> None:
    assert sums(1.0).sum(total)[0] == 6.0
    with pytest.raises(LetheError, match="a row is longer than its bound"):
        sums(1.005).sum(total)


def test_a_mechanism_that_supposes_half_a_per_cent_less_refuses() -> None:
    sums(1.0).require_norm(1.0)
    with pytest.raises(InputError, match="the mechanism supposes at most"):
        sums(1.0).require_norm(0.995)
