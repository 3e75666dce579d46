"""A pass counts every block once, in a fixed order, whatever is repeated, lost or changed on the way; and no row beyond its bound."""

import math
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from partitioned_records import in_blocks, records

from lethe.errors import InputError, LetheError
from lethe.estimators.partitioned.records import BlockRecords, PreparedRows
from lethe.estimators.partitioned.tables import as_numbers
from lethe.partitions import array_table
from lethe.partitions.block import Block
from lethe.partitions.passes import BlockLocation, BlockResult, Work, once_each, total
from lethe.partitions.table import Chunks, RecordSums
from lethe.run.losses import Logistic


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("count", [40, 3000, 40_000])
def test_records_that_change_places_show_however_near_they_are(width: int, count: int) -> None:
    """A record that goes over the edge between two batches would be in both of them in one pass."""
    rows = np.random.default_rng(0).standard_normal((count, width))
    before, here = (Block(name="", columns=tuple(range(width)), features=held) for held in (rows, np.asfortranarray(rows)))
    assert before.fingerprint() == before.fingerprint()
    halves = np.roll(np.arange(count), count // 2)
    for one in (0, 1, count // 2, count - 2):
        order = np.arange(count)
        order[[one, one + 1]] = one + 1, one
        for there in (order, halves):
            assert replace(before, features=rows[there]).fingerprint() != before.fingerprint()
            assert replace(here, features=np.asfortranarray(rows[there])).fingerprint() != here.fingerprint()


class Shuffling:
    """Gives the answers backwards, each twice with another value the second time, and one of no block of the pass; some may be lost."""

    def __init__(self, lost: int = 0) -> None:
        self.lost = lost

    def answers(self, parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        for part in reversed(parts[self.lost :]):
            answer = work(part.place, part.name, part.stored, part.rows)
            yield answer
            yield replace(answer, values=tuple(1e9 * value for value in answer.values) if isinstance(answer.values, tuple) else None)
        yield BlockResult(10**6, None, (np.ones(()),))


def sums(block: Block, scale: float) -> tuple[Any, ...]:
    return scale * block.features.sum(axis=0, dtype=np.float64), np.float64(len(block))


def nothing(block: Block) -> None:
    return None


def test_sums_are_the_same_however_the_records_are_cut() -> None:
    features, _, _ = records(150)
    exact = [2.0 * math.fsum(column) for column in features.astype(float).T]
    for blocks in (1, 2, 7, 160):  # the last a record each
        table, _ = array_table(features, blocks=blocks, workers=2).examined(nothing)
        assert table.shape == (150, 5)
        found, count = table.sum(sums, 2.0)
        assert count == 150
        assert found == pytest.approx(exact, rel=1e-12, abs=1e-10)
    table, _ = in_blocks(7, "label").examined(nothing)
    features, _, _ = records()
    for start, stop in ((0, 1500), (0, 1), (213, 215), (214, 1286), (1499, 1500)):
        found, count = table.sum(sums, 1.0, records=slice(start, stop))
        assert count == stop - start
        assert found == pytest.approx(features[start:stop].astype(float).sum(axis=0), abs=1e-10)


def test_additions_lose_nothing_to_a_large_number_among_them() -> None:
    assert total([(np.array([1.0]),), (np.array([1e17]),), (np.array([1.0]),), (np.array([-1e17]),)])[0].tolist() == [2.0]


def test_answers_that_come_backwards_and_twice_count_once_and_one_that_is_missing_is_an_error() -> None:
    plain = in_blocks(7, "label")
    expected = plain.examined(nothing)[0].sum(sums, 1.0)
    odd, _ = replace(plain, executor=Shuffling()).examined(nothing)
    for one, other in zip(odd.sum(sums, 1.0), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(LetheError, match="1 of 7 gave no result; nothing was released"):
        replace(in_blocks(7, "label"), executor=Shuffling(lost=1)).examined(nothing)
    assert [one.place for one in once_each(iter([BlockResult(1, None, None), BlockResult(0, None, None)]), [0, 1])] == [0, 1]


@pytest.mark.parametrize("change", ["value", "order", "target", "count"])
def test_a_block_that_changes_between_passes_is_refused(change: str) -> None:
    features, labels, _ = records()
    table, _ = array_table(features, labels, blocks=3).examined(nothing)
    table.sum(sums, 1.0)
    match change:
        case "value":
            features[700, 2] += 1e-6
        case "order":
            features[500:1000] = features[500:1000][::-1].copy()
        case "target":
            labels[700] = 1 - labels[700]
        case "count":
            table.seen = (table.seen[0], table.seen[1]._replace(records=499), table.seen[2])
    with pytest.raises(LetheError, match=r"block 1 \(records 500 to 1000\): holds other records"):
        table.sum(sums, 1.0)


def test_an_interrupt_ends_the_pass() -> None:
    begun: list[str] = []

    def told(number: int, done: int, blocks: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    def look(block: Block) -> None:
        begun.append(block.name)
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        replace(in_blocks(50, "label"), progress=told).examined(look)
    count = len(begun)
    assert count < 10
    time.sleep(0.05)
    assert len(begun) == count


def test_progress_does_not_tell_which_blocks_hold_records_that_were_drawn() -> None:
    """How many blocks a step reads says where its records are; a step of none would be missing."""

    def told_of(drawn: list[int]) -> list[tuple[int, int, int]]:
        told: list[tuple[int, int, int]] = []
        table, _ = replace(in_blocks(10, "label"), progress=lambda *where: told.append(where)).examined(nothing)
        assert told == [(1, done, 10) for done in range(1, 11)]
        prepared = PreparedRows(targets=as_numbers, loss=Logistic(feature_norm=1.0), feature_norm=1.0, intercept=False)
        found = BlockRecords(table, prepared).gradient_sum(np.zeros((5, 1)), np.array(drawn, dtype=np.intp))
        assert np.any(found) == bool(drawn)
        return told[10:]

    assert [told_of(drawn) for drawn in ([3], [3, 900, 1499], [])] == [[(2, 10, 10)]] * 3


def test_what_goes_to_a_worker_is_no_file_of_the_whole_table(tmp_path: Any) -> None:
    features, labels, _ = records()
    np.save(tmp_path / "X.npy", features)
    np.save(tmp_path / "y.npy", labels)
    table = array_table(tmp_path / "X.npy", tmp_path / "y.npy", blocks=3)
    assert all(len(pickle.dumps(part)) < 1000 for part in table.parts)
    found = table.examined(nothing)[0].sum(sums, 1.0)
    np.testing.assert_array_equal(found[0], in_blocks(3, "label").examined(nothing)[0].sum(sums, 1.0)[0])


def scaled(block: Block, length: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield np.full((len(block.features), 1), length), np.zeros(len(block.features))


def all_entries(chunks: Chunks) -> tuple[np.ndarray]:
    return (np.array(sum(rows.sum() for rows, _ in chunks)),)


def test_a_row_half_a_per_cent_too_long_ends_the_pass_and_a_mechanism_that_supposes_less_refuses() -> None:
    table, _ = array_table(np.ones((6, 1)), np.zeros(6), blocks=2).examined(nothing)
    good, long = (RecordSums(table=table, prepare=partial(scaled, length=length), columns=1, norm=1.0) for length in (1.0, 1.005))
    assert good.sum(all_entries)[0] == 6.0
    with pytest.raises(LetheError, match="a row is longer than its bound"):
        long.sum(all_entries)
    good.require_norm(1.0)
    with pytest.raises(InputError, match="the mechanism supposes at most"):
        good.require_norm(0.995)
