"""The bytes of a tensor's numbers, for a hash."""

import numpy as np
import pytest
import torch

from lethe.train.core.tensors import contents


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (0,)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_of_strided_and_expanded_tensors(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A single number that was expanded has the stride 0, and counts as contiguous."""
    for tensor in (torch.ones(()).to(dtype).expand(shape), torch.ones((5, *shape)).to(dtype)[2], torch.ones((*shape, 2)).to(dtype)[..., 0]):
        assert contents(tensor) == np.ones(shape, dtype=str(dtype).removeprefix("torch.").replace("bool", "bool_")).tobytes()
