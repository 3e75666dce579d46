"""Many tensors looked at in few operations: every answer is that of each one alone, as on a CPU and as on a GPU."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lethe.train.core import tensor_fingerprint
from lethe.train.core.tensor_fingerprint import fingerprint, fingerprints
from lethe.train.core.together import small_tensors
from lethe.train.core.together.small_tensors import groups_of, largest_size
from lethe.train.core.together.tensor_copies import TensorCopies
from lethe.train.network import NetworkNoise
from lethe.train.network.noise import gaussian


@pytest.fixture(params=[True, False], ids=["on a CPU", "as on a GPU"])
def somewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        for name, module in list(sys.modules.items()):
            if name.startswith("lethe.") and hasattr(module, "on_cpu"):
                monkeypatch.setattr(module, "on_cpu", lambda tensor: False)


def some() -> list[Tensor]:
    """Of several types, shapes and layouts: small ones, empty ones, one that is large, one that is turned and one with a NaN."""
    torch.manual_seed(0)
    shapes = [(3, 4), (), (0,), (70, 1000), (5,), (300, 7), (2, 3)]
    tensors = [torch.randn(shape) for shape in shapes] + [torch.randn(4, dtype=torch.float64), torch.randn(6).bfloat16()]
    tensors += [torch.randn(6, 3).t(), torch.randn(4, 2, dtype=torch.complex64), torch.tensor([math.nan, 1.0])]
    return tensors


def changed(tensors: list[Tensor], place: int) -> list[Tensor]:
    copies = [tensor.clone() for tensor in tensors]
    copies[place].view(-1)[-1:].neg_() if copies[place].is_contiguous() else copies[place][-1, -1:].neg_()
    return copies


@pytest.mark.usefixtures("somewhere")
def test_copies_tell_which_tensor_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_tensors, "_TOGETHER", 2000)  # more vectors than one
    tensors = some()
    assert any(len(group) > 1 for group in groups_of(tensors))
    assert any(len(group) == 1 for group in groups_of(tensors))
    copies = TensorCopies(tensors)
    assert copies.differing([tensor.clone() for tensor in tensors]) == []
    for place, tensor in enumerate(tensors):
        if tensor.numel():
            assert copies.differing(changed(tensors, place)) == [place]
    assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(copies.each(), tensors, strict=True))


@pytest.mark.usefixtures("somewhere")
def test_copies_tell_other_shapes_and_types_and_what_changes_places() -> None:
    tensors = some()
    copies = TensorCopies(tensors)
    for other in (tensors[0].t(), tensors[0].double(), tensors[0].view(1, 3, 4), torch.empty(3, 4, device="meta")):
        assert copies.differing([other, *tensors[1:]]) == [0]
    assert copies.differing([*tensors[:2], torch.empty(0, 2), *tensors[3:]]) == [2]
    pair = TensorCopies([torch.zeros(2), torch.ones(2)])
    assert pair.differing([torch.ones(2), torch.zeros(2)]) == [0, 1]
    assert pair.differing([-torch.zeros(2), torch.ones(2)]) == [0]
    assert TensorCopies(()).differing([]) == []


@pytest.mark.usefixtures("somewhere")
def test_copies_are_kept_anew_and_changed_in_place() -> None:
    tensors = some()
    copies = TensorCopies(tensors)
    later = [tensor + 1 for tensor in tensors]
    assert len(copies.differing(later)) == len(tensors) - 1  # all but the empty one
    copies.keep(later)
    assert copies.differing(later) == []
    for copy in copies.each():
        copy.sub_(1)
    assert copies.differing([tensor + 1 - 1 for tensor in tensors]) == []
    for other in ([later[0].double(), *later[1:]], [later[0][:1], *later[1:]]):
        copies.keep(other)  # another type or shape is not taken for what was held
        assert 0 in copies.differing(other)
    copies.keep(later)
    assert copies.differing(later) == []


@pytest.mark.usefixtures("somewhere")
def test_fingerprints_together_tell_what_each_alone_tells() -> None:
    tensors = some()
    before = fingerprints(tensors)
    assert before == [fingerprint(tensor) for tensor in tensors]
    for place, tensor in enumerate(tensors):
        if tensor.numel():
            assert [one != other for one, other in zip(fingerprints(changed(tensors, place)), before, strict=True)] == [
                number == place for number in range(len(tensors))
            ]


@pytest.mark.usefixtures("somewhere")
@pytest.mark.parametrize("size", [2048, 2**15])
def test_numbers_of_eight_bytes_that_are_negated_show(size: int) -> None:
    """Their sign bits, summed in whole numbers of eight bytes, add up to a multiple of 2^64: to nothing."""
    tensor = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    other = torch.cat([-tensor[: size // 2], tensor[size // 2 :]])
    assert fingerprint(tensor) != fingerprint(-tensor)
    assert fingerprint(tensor) != fingerprint(other)


def test_fingerprints_are_the_same_sums_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints(some())
    monkeypatch.setattr(tensor_fingerprint, "on_cpu", lambda tensor: False)
    assert fingerprints(some()) == before


@pytest.mark.usefixtures("somewhere")
@pytest.mark.parametrize("size", [3, 70_000])
def test_fingerprints_leave_memory_that_can_be_let_go_of(size: int) -> None:
    """As gathered shards are; NumPy holds on to what it has seen."""
    tensor = torch.ones(size)
    fingerprint(tensor)
    fingerprints([tensor, tensor[:1]])
    tensor.untyped_storage().resize_(0)


@pytest.mark.usefixtures("somewhere")
def test_the_largest_size_is_that_of_all() -> None:
    tensors = [torch.tensor([0.5]), torch.tensor(-3.0), torch.linspace(-1, 2, 70_000), torch.zeros(2, 2)]
    assert largest_size(tensors) == 3.0
    assert largest_size([torch.linspace(-7, 2, 70_000), *tensors]) == 7.0
    for broken in (math.nan, math.inf, -math.inf):
        assert not math.isfinite(largest_size([*tensors, torch.tensor([broken, 0.0])]))


@pytest.mark.usefixtures("somewhere")
@pytest.mark.parametrize("kind", [np.random.default_rng, lambda seed: torch.Generator().manual_seed(seed)], ids=["NumPy", "PyTorch"])
@pytest.mark.parametrize("pairs", [2**16, 2000])
def test_noise_on_many_tensors_is_that_on_each_in_turn(kind: Any, pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many vectors meet the end of what was made at once."""
    monkeypatch.setattr(gaussian, "_PAIRS", pairs)
    tensors = [tensor for tensor in some()[:9] if tensor.dtype != torch.bfloat16]
    tensors = [*tensors, *([torch.zeros(9000), torch.zeros(3)] * 5), torch.zeros(6, 4).t(), torch.ones(8), torch.zeros(8)]
    together, alone = NetworkNoise(kind(3)), NetworkNoise(kind(3))
    one, other = [tensor.clone() for tensor in tensors], [tensor.clone() for tensor in tensors]
    for _ in range(2):
        together.add_to(one, 0.3)
        for tensor in other:
            alone.add_to([tensor], 0.3)
    assert all(torch.equal(first, second) for first, second in zip(one, other, strict=True))
    assert not torch.equal(one[-1], tensors[-1])
