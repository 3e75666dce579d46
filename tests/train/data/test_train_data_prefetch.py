"""Reading ahead: order, bound, errors in their place, and no thread left behind."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from data_cases import extra_threads
from hypothesis import given
from hypothesis import strategies as st

from lethe.train.data import prefetch
from lethe.train.data.prefetch import prefetched


class Source:
    """Counts up; notes how far it went, in which thread, and that it was closed."""

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self.count, self.error = count, error
        self.drawn = 0
        self.closed = False
        self.thread = ""

    def items(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                self.thread = threading.current_thread().name
                self.drawn += 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


@pytest.mark.slow
@given(count=st.integers(0, 20), depth=st.integers(0, 5))
def test_the_items_come_in_order(count: int, depth: int) -> None:
    source = Source(count)
    assert list(prefetched(source.items(), depth)) == list(range(count))
    assert source.closed
    assert extra_threads() == 0
    if count:
        assert (source.thread == "lethe-prefetch") == (depth > 0)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt(), ValueError("bad")])
def test_an_error_comes_after_what_came_before_it(depth: int, error: BaseException) -> None:
    source = Source(4, error)
    got: list[int] = []
    with pytest.raises(type(error)) as caught:
        got.extend(prefetched(source.items(), depth))
    assert caught.value is error
    assert got == [0, 1, 2, 3]
    assert extra_threads() == 0


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_an_early_stop_closes_everything_and_draws_no_more_than_the_bound(depth: int) -> None:
    source = Source(1000)
    ahead = prefetched(source.items(), depth)
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    ahead.close()
    assert source.closed
    assert extra_threads() == 0
    # three delivered, `depth` waiting, one in hand, and one that the emptied queue let through at the end
    assert source.drawn <= 3 + (depth + 2 if depth else 0)


def test_an_error_of_the_consumer_stops_the_thread() -> None:
    source = Source(1000)

    def consume() -> None:
        for item in prefetched(source.items(), 2):
            if item == 5:
                raise RuntimeError("training broke")

    with contextlib.suppress(RuntimeError):  # unlike pytest.raises, it does not keep the frames of the error
        consume()
    assert source.closed
    assert extra_threads() == 0


def test_an_iterator_never_begun_starts_no_thread() -> None:
    ahead = prefetched(Source(3).items(), 2)
    assert extra_threads() == 0
    ahead.close()


LEFT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("reading_ahead", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["reading_ahead"] = module
spec.loader.exec_module(module)

def items():
    try:
        yield from range(1000)
    finally:
        print("closed")

ahead = module.prefetched(items(), 2)
next(ahead)
if sys.argv[2] == "interrupted":
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize("end", ["left", "interrupted"])
def test_a_script_that_ends_in_the_middle_ends_without_a_word(end: str) -> None:
    """The generator is finalised by the interpreter, which then has no module any more that it needs; its items are closed before."""
    found = subprocess.run([sys.executable, "-c", LEFT, prefetch.__file__, end], capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == "closed\n"
    assert "ignored" not in found.stderr
    assert (found.stderr == "") == (end == "left")


def test_operations_in_the_thread_are_not_divided_and_those_elsewhere_are() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        told = list(prefetched((torch.get_num_threads() for _ in range(3)), 1))
        assert told == [1, 1, 1]
        assert torch.get_num_threads() == 2
        assert list(prefetched((torch.get_num_threads() for _ in range(2)), 0)) == [2, 2]
    finally:
        torch.set_num_threads(before)


def test_an_error_when_the_items_are_closed_is_raised() -> None:
    class Closing:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            raise StopIteration

        def close(self) -> None:
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(prefetched(Closing(), 1))
    assert extra_threads() == 0
