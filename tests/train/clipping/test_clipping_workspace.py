import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lethe.train.clipping import Clipper, workspace
from lethe.train.clipping.rules.convolution.correlations import Correlations
from lethe.train.clipping.workspace import Workspace, arrived, borrowed, freed

LIKE = torch.zeros(())


def lent(shape: tuple[int, ...], like: Tensor = LIKE) -> Tensor:
    tensor = borrowed(shape, like)
    assert tensor is not None
    assert tensor.shape == shape
    assert tensor.dtype == like.dtype
    return tensor


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_without_a_workspace_small_tensors_are_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_HELD", 12)
    assert address(lent((3, 4))) != address(lent((3, 4)))
    assert borrowed((13,), LIKE) is None


def test_what_is_lent_together_shares_no_memory() -> None:
    with Workspace().open():
        first, second = lent((3, 4)).fill_(1), lent((12,)).fill_(2)
        assert (first == 1).all()
        assert (second == 2).all()


def test_the_next_batch_gets_the_same_memory_in_any_type() -> None:
    space, addresses = Workspace(), []
    for dtype, shape in ((torch.float64, (5, 4)), (torch.float32, (40,)), (torch.float64, (2, 2, 5)), (torch.float64, (24,))):
        with space.open():
            addresses.append(address(lent(shape, LIKE.to(dtype))))
    assert len(set(addresses)) == 1  # the last is a fifth larger


def test_the_smallest_memory_that_fits_is_lent() -> None:
    space = Workspace()
    with space.open():
        small, large = address(lent((10,))), address(lent((1000,)))
    with space.open():
        assert address(lent((9,))) == small
        assert address(lent((1000,))) == large


def test_what_a_batch_had_no_use_for_is_let_go() -> None:
    space = Workspace()
    with space.open():
        lent((1000,))
    with space.open():
        pass
    assert not space._kept


def test_no_more_is_lent_than_the_limit_and_each_batch_begins_anew() -> None:
    space = Workspace(limit=48)
    for _ in range(2):
        with space.open():
            lent((3, 3))
            assert borrowed((4,), LIKE) is None
            lent((3,))
            assert borrowed((1,), LIKE) is None
            lent((0, 7))


def test_without_a_limit_formed_gradients_take_the_place_of_what_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_LEAST", 16)
    space = Workspace()
    for _ in range(2):
        with space.open():
            lent((4,))
            assert borrowed((1,), LIKE) is None
            freed(torch.zeros(1), torch.zeros(1))
            lent((4,))
            assert borrowed((1,), LIKE) is None


def test_inputs_that_several_layers_are_given_are_freed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_LEAST", 0)
    space, shared = Workspace(), torch.zeros(2)
    for _ in range(2):
        with space.open():
            freed(shared, torch.zeros(0))
            lent((4,))
            freed(shared[1:], torch.zeros(0))
            assert borrowed((1,), LIKE) is None


def test_what_is_kept_is_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_LEAST", 0)
    with Workspace().open():
        freed(torch.zeros(4), torch.zeros(4), kept=16)
        assert borrowed((9,), LIKE) is None
        lent((8,))


def test_the_largest_gradient_that_is_held_makes_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_LEAST", 0)
    space = Workspace()
    for _ in range(2):
        with space.open():
            arrived(8)
            arrived(4)
            lent((4,))
            assert borrowed((1,), LIKE) is None


def test_all_stays_where_a_batch_took_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_STAYS", 16)
    monkeypatch.setattr(workspace, "_ALL_STAYS", 400)
    space, places = Workspace(), list[int]()
    for _ in range(3):
        with space.open():
            places.append(lent((100,)).data_ptr())
    assert places[1] == places[2]
    assert sum(len(memory) for memory in space._kept) == 500
    for numbers in (101, 100):  # the first took too much, and the second was not known to take less
        with space.open():
            lent((numbers,))
        assert not space._kept


def test_what_is_large_is_free_as_soon_as_nobody_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_STAYS", 16)
    space = Workspace()
    with space.open():
        small, large = lent((4,)), weakref.ref(lent((100,)))
        assert large() is None
        assert small.numel()
    assert sum(len(memory) for memory in space._kept) == 20


def test_what_was_lent_is_empty_afterwards_even_if_the_batch_failed() -> None:
    space = Workspace()
    with space.open():
        first = lent((3, 4))
    assert not first.numel()
    failed: list[Tensor] = []
    with pytest.raises(ZeroDivisionError):
        fail(space, failed)
    assert not failed[0].numel()
    assert address(lent((3, 4))) != address(space._kept[0])  # and it is closed


def fail(space: Workspace, seen: list[Tensor]) -> None:
    with space.open():
        seen.append(lent((3, 4)))
        raise ZeroDivisionError


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 4, 2), nn.Flatten(2), nn.Linear(16, 6), nn.Flatten(), nn.Linear(24, 2))


def summed(clipper: Clipper, inputs: Tensor, targets: Tensor) -> dict[nn.Parameter, Tensor]:
    with clipper.recording():
        outputs = clipper.model(inputs)
    clipper.backward(nn.functional.cross_entropy(outputs, targets, reduction="none"))
    return clipper.take()


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    for records in (5, 5, 9, 3, 1, 9):
        yield torch.randn(records, 2, 7, 7), torch.randint(2, (records,))


@pytest.mark.slow
def test_batches_one_after_the_other_are_as_if_each_were_the_first() -> None:
    model = network()
    clipper, kept = Clipper(model, clip_norm=0.3, verify=False), []
    for inputs, targets in batches():
        kept.append((summed(clipper, inputs, targets), summed(Clipper(model, clip_norm=0.3, verify=False), inputs, targets)))
    assert clipper._workspace._kept  # so memory is reused
    for told, fresh in kept:  # all of them at the end: no sum may lie in memory that a later batch writes
        for parameter in model.parameters():
            assert told[parameter].is_contiguous()
            torch.testing.assert_close(told[parameter], fresh[parameter], rtol=0, atol=0)


def test_without_room_the_sums_are_the_same() -> None:
    model = network()
    inputs, targets = next(batches())
    roomy = summed(Clipper(model, clip_norm=0.3, verify=False), inputs, targets)
    narrow = summed(Clipper(model, clip_norm=0.3, verify=False, gradient_memory=0), inputs, targets)
    for parameter in model.parameters():
        torch.testing.assert_close(narrow[parameter], roomy[parameter], rtol=1e-5, atol=1e-7)


def test_a_part_read_after_its_batch_gives_no_numbers_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[Correlations] = []
    measure = Correlations._measure

    def spied(self: Correlations) -> Any:
        parts.append(self)
        return measure(self)

    monkeypatch.setattr(Correlations, "_measure", spied)
    inputs, targets = next(batches())
    summed(Clipper(network(), clip_norm=0.3, verify=False), inputs, targets)
    kept = [part for part in parts if part._kept is not None]
    assert kept
    for part in kept:
        with pytest.raises((IndexError, RuntimeError)):
            part.weighted_sum(torch.ones(len(inputs)))


def live_bytes() -> int:
    """Of all tensors that Python can reach."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in gc.get_objects()
        if issubclass(type(tensor), Tensor)  # isinstance asks the objects, of which some warn
        and type(tensor).__name__ != "FakeTensor"  # without memory: what torch.compile keeps in other tests
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
    }
    return sum(storages.values())


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the clipper could not check")
@pytest.mark.parametrize("verify", [False, True])
def test_a_step_leaves_nothing_behind(verify: bool) -> None:
    """Without the collector: what only it could free would lie about for many steps, batches of activations at a time."""
    model = network()
    clipper = Clipper(model, clip_norm=0.3, verify=verify)
    inputs, targets = next(batches())
    gc.collect()
    gc.disable()
    try:
        live = []
        for _ in range(5):
            summed(clipper, inputs, targets)
            live.append(live_bytes())
    finally:
        gc.enable()
    # batches 1, 2 and 4 are the checked ones
    assert live[2] == live[4]
    assert live[0] == live[1] if not verify else live[3] <= live[1]
