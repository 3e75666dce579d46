"""Steps that are skipped: drawn, not loaded, and what follows is what would have followed."""

from typing import Any

import pytest
from data_cases import listed, make_run, numbered, seeded
from helpers import DESIGNS
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.train.data import BatchStream


def steps_of(stream: BatchStream, count: int | None = None) -> list[tuple[int, list[int]]]:
    """The next so many steps, or all of them."""
    steps: list[tuple[int, list[int]]] = []
    for batch in stream:
        if len(steps) == count:
            break
        if batch.last:
            steps.append((batch.step, listed(batch.whole)))
            if len(steps) == count:
                break
    stream.close()
    return steps


@pytest.mark.nightly(by_day="test_resuming_after_every_step")
@pytest.mark.slow
@given(design=st.sampled_from(DESIGNS), before=st.integers(0, 5), skipped=st.integers(0, 6), prefetch=st.sampled_from([0, 2]))
def test_what_follows_is_what_would_have_followed(design: str, before: int, skipped: int, prefetch: int) -> None:
    run = make_run(design, steps=11)
    whole = steps_of(BatchStream(run, numbered(run.records), seeded(5), prefetch=0))
    stream = BatchStream(run, numbered(run.records), seeded(5), prefetch=prefetch)
    first = steps_of(stream, before) if before else []
    assert [listed(batch) for batch in stream.skip(skipped)] == [records for _, records in whole[before : before + skipped]]
    assert stream.steps_done == before + skipped
    state = stream.state_dict()
    assert first + steps_of(stream) == whole[:before] + whole[before + skipped :]
    again = BatchStream(run, numbered(run.records), seeded(99), prefetch=0)
    again.load_state_dict(state)
    assert steps_of(again) == whole[before + skipped :]


@pytest.mark.parametrize(("steps", "message"), [(-1, "steps: got -1"), (True, "steps: got True"), (12, "11 steps are left")])
def test_refusals(steps: Any, message: str) -> None:
    run = make_run("poisson", steps=11)
    stream = BatchStream(run, numbered(run.records), seeded(5))
    with pytest.raises(InputError, match=message):
        stream.skip(steps)
    assert stream.steps_done == 0


def test_no_skipping_from_the_middle_of_a_step() -> None:
    run = make_run("cyclic", steps=11)
    stream = BatchStream(run, numbered(run.records), seeded(5), physical_size=1)
    running = iter(stream)
    next(running)
    with pytest.raises(InputError, match="cannot skip steps meanwhile"):
        stream.skip(1)
    stream.close()
    with pytest.raises(InputError, match="half delivered"):
        stream.skip(1)
