from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lethe.train.clipping.rules.convolution.windows import Geometry, windows

LENGTHS = st.tuples(*[st.integers(1, 3)] * 4)


def read(inputs: Tensor, geometry: Geometry, places: tuple[int, ...]) -> Tensor:
    """One number after the other, by the definition."""
    space = inputs.shape[2:]
    rows = []
    for place in product(*map(range, places)):
        columns = []
        for tap in product(*map(range, geometry.kernel)):
            moves = zip(place, geometry.stride, tap, geometry.dilation, geometry.padding, strict=True)
            at = [t * step + k * gap - zeros for t, step, k, gap, zeros in moves]
            inside = all(0 <= position < size for position, size in zip(at, space, strict=True))
            columns.append(inputs[:, :, *at] if inside else torch.zeros_like(inputs[..., *[0] * len(space)]))
        rows.append(torch.stack(columns, dim=1).flatten(1))
    return torch.stack(rows, dim=1)


@pytest.mark.slow
@given(data=st.data(), dimensions=st.integers(1, 3), records=st.integers(0, 3), channels=st.integers(1, 3), last=st.booleans())
def test_windows_are_what_the_kernel_reads(data: st.DataObject, dimensions: int, records: int, channels: int, last: bool) -> None:
    kernel, stride, dilation, count = (data.draw(LENGTHS)[:dimensions] for _ in range(4))
    padding = tuple(data.draw(st.integers(0, 2)) for _ in range(dimensions))
    unread = data.draw(st.integers(0, 2))
    reach = [(t - 1) * s + (k - 1) * d + 1 for t, s, k, d in zip(count, stride, kernel, dilation, strict=True)]
    space = [max(1, read + unread - 2 * zeros) for read, zeros in zip(reach, padding, strict=True)]
    inputs = torch.arange(1.0, 1 + records * channels * torch.Size(space).numel()).view(records, channels, *space)
    if last:  # the same numbers, laid out otherwise
        inputs = inputs.movedim(1, -1).contiguous().movedim(-1, 1)
    geometry = Geometry(kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=1)
    assert torch.equal(windows(inputs, geometry, count), read(inputs, geometry, count))


def test_a_kernel_of_one_tap_that_reads_everything_needs_no_copy() -> None:
    inputs = torch.randn(2, 3, 4, 5)
    geometry = Geometry(kernel=(1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
    found = windows(inputs, geometry, (4, 5))
    assert found.untyped_storage().data_ptr() == inputs.untyped_storage().data_ptr()
    assert torch.equal(found, inputs.flatten(2).mT)
