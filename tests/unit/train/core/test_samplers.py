"""Chance tests use a false-alarm probability of 1e-9 each; seeds are fixed, so they are also repeatable."""

import numpy as np
import pytest
import torch
from helpers import DESIGNS, EXACT_DESIGNS, EXACT_SLOT_DESIGNS, SECRET_DESIGNS
from how_many import by_night
from problems import RECORDS, make_run
from scipy import stats

from lethe.train.core.samplers import draw_batches

ALARM = 1e-9


def drawn(design: str, seed: int = 0, **changes: object) -> list[np.ndarray]:
    run = make_run(design=design, **changes)
    return [torch.arange(run.records)[batch].numpy() for batch in draw_batches(run, torch.Generator().manual_seed(seed))]


def passes_of(batches: list[np.ndarray], per_pass: int = 4) -> list[list[np.ndarray]]:
    return [batches[first : first + per_pass] for first in range(0, len(batches), per_pass)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("changes", [{"passes": 3}, {"steps": 7}])
def test_there_is_one_batch_a_step_without_a_record_twice(design: str, changes: dict[str, int]) -> None:
    """Of exact size and disjoint within a pass, where the design says so."""
    batches = drawn(design, **changes)
    assert len(batches) == make_run(design=design, **changes).total_steps
    assert all(len(np.unique(batch)) == len(batch) for batch in batches)
    if design in EXACT_DESIGNS:
        assert {len(batch) for batch in batches} == {RECORDS if design == "full" else 5}
    for one in passes_of(batches) if design in EXACT_SLOT_DESIGNS else ():
        assert len(np.unique(np.concatenate(one))) == 5 * len(one)  # 4 batches of 5, 3 of 23 left over
    if design in SECRET_DESIGNS:  # which follows the generator
        same = [tuple(map(tuple, drawn(design, seed=seed))) for seed in (1, 1, 2)]
        assert same[0] == same[1]
        assert same[0] != same[2]


@pytest.mark.parametrize("design", ["full", "cyclic"])
def test_public_orders_are_those_of_the_data_and_draw_no_randomness(design: str) -> None:
    generator, untouched = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for step, batch in enumerate(draw_batches(make_run(design=design), generator)):
        first = 5 * (step % 4)
        assert batch == (slice(0, RECORDS) if design == "full" else slice(first, first + 5))  # so records 20, 21, 22 are never used
    assert torch.equal(generator.get_state(), untouched.get_state())


@pytest.mark.parametrize("design", ["shuffled_once", "balls_in_bins"])
def test_the_secret_is_drawn_once_and_every_pass_repeats_it(design: str) -> None:
    first, *later = passes_of(drawn(design, passes=3))
    for one in later:
        assert all((ours == theirs).all() for ours, theirs in zip(one, first, strict=True))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("design", "slots"), [("shuffled_once", 5), ("shuffled", 5), ("random_allocation", 5), ("balls_in_bins", 4)])
def test_a_records_slot_is_uniform(design: str, slots: int) -> None:
    """Chi-square over seeds, of two records; of 23 records in batches of 5 permutations leave over 3, which is their fifth slot."""
    seeds = 4000 if by_night() else 1000
    run = make_run(design=design, passes=1)
    counts = np.zeros((2, 5))
    for seed in range(seeds):
        place = np.full(RECORDS, 4)
        for slot, batch in enumerate(draw_batches(run, torch.Generator().manual_seed(seed))):
            place[torch.arange(RECORDS)[batch].numpy()] = slot
        counts[[0, 1], place[[0, RECORDS - 1]]] += 1
    expected = np.array([5 / 23] * 4 + [3 / 23]) if run.batches.exact_size else np.full(slots, 1 / slots)
    for row in counts:
        assert row[slots:].sum() == 0
        assert stats.chisquare(row[:slots], seeds * expected).pvalue > ALARM


@pytest.mark.parametrize("design", ["shuffled", "random_allocation"])
def test_slots_are_independent_from_pass_to_pass(design: str) -> None:
    """Record 0's slots in consecutive passes: a chi-square test of the 5 x 5 table against the product."""
    table = np.zeros((5, 5))
    previous = None
    for one in passes_of(drawn(design, passes=6000 if by_night() else 2000), 4 if design == "shuffled" else 5):
        slot = next((index for index, batch in enumerate(one) if 0 in batch), 4)
        if previous is not None:
            table[previous, slot] += 1
        previous = slot
    assert stats.chi2_contingency(table[table.any(axis=1)][:, table.any(axis=0)]).pvalue > ALARM


def test_records_are_thrown_independently_and_each_once_a_pass() -> None:
    """The slots of two records in the same pass: a chi-square test of the 5 x 5 table against the product of its margins."""
    table = np.zeros((5, 5))
    for one in passes_of(drawn("random_allocation", passes=6000 if by_night() else 2000), 5):
        slot = np.full(RECORDS, -1)
        for place, batch in enumerate(one):
            assert (slot[batch] == -1).all()
            slot[batch] = place
        assert (slot >= 0).all()
        table[slot[0], slot[1]] += 1
    assert stats.chi2_contingency(table).pvalue > ALARM


def test_poisson_inclusion_is_bernoulli_and_independent() -> None:
    steps = 20_000 if by_night() else 6000
    batches = drawn("poisson", steps=steps)
    joined = np.zeros((steps, RECORDS))
    for step, batch in enumerate(batches):
        joined[step, batch] = 1
    chance = 5 / 23
    low, high = stats.binom.interval(1 - ALARM, joined.size, chance)
    assert low <= joined.sum() <= high
    for record in range(RECORDS):
        assert stats.binomtest(int(joined[:, record].sum()), steps, chance).pvalue > ALARM
    # sizes follow Bin(23, 5/23): chi-square over 0..11 and above, which also sees dependence between records
    sizes = np.bincount(np.minimum([len(batch) for batch in batches], 12), minlength=13)
    law = stats.binom.pmf(np.arange(12), RECORDS, chance)
    assert stats.chisquare(sizes, steps * np.append(law, 1 - law.sum())).pvalue > ALARM
    assert sizes[0] > 0  # empty batches occur and are legal


@pytest.mark.parametrize(("design", "records", "size"), [("poisson", 4_000_000, 3_000_000), ("balls_in_bins", 2_000_000, 500_000)])
def test_it_takes_its_share_of_very_many_records(design: str, records: int, size: int) -> None:
    """So many that a chance wrong by half a hundredth, or of a bin by a hundredth, is seen."""
    low, high = stats.binom.interval(1 - ALARM, records, size / records)
    assert high < (1.002 if design == "poisson" else 1.01) * size
    batches = drawn(design, records=records, batches={"design": design, "size": size}, passes=1)
    assert [low <= len(one) <= high for one in batches] == [True] * (records // size)


def test_without_replacement_is_uniform_over_pairs() -> None:
    """Every pair of records appears together equally often: 253 pairs with probability (5*4)/(23*22)."""
    steps = 20_000 if by_night() else 5000
    together = np.zeros((RECORDS, RECORDS))
    for batch in drawn("without_replacement", steps=steps):
        together[np.ix_(batch, batch)] += 1
    chance = 20 / (23 * 22)
    pairs = together[np.triu_indices(RECORDS, 1)]
    assert pairs.sum() == steps * 10
    for count in (pairs.min(), pairs.max()):
        assert stats.binomtest(int(count), steps, chance).pvalue > ALARM / len(pairs)
