"""The number of a tensor's bits: any one bit changes it, wherever it lies."""

import pytest
import torch

from lethe.train.clip.module_state import digests_of


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
@pytest.mark.parametrize("length", [1, 3, 8, 13])
def test_any_number_that_changes_is_seen(dtype: torch.dtype, length: int) -> None:
    whole = torch.arange(length + 3).to(dtype)
    views = {"whole": whole, "shifted": whole[1:], "sparse": whole[::2], "rows": whole[: length // 2 * 2].view(2, -1).T}
    for name, view in views.items():
        before = digests_of({name: view})
        for place in range(view.numel()):
            changed = view.flatten().clone()
            changed[place] = 1 - int(changed[place]) if dtype == torch.bool else changed[place] + 1
            assert digests_of({name: changed}) != before
        assert digests_of({name: view.clone()}) == before
