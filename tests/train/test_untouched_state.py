"""Buffers and parameters are compared by value: however they were written."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lethe.errors import HypothesisError
from lethe.train.model_state.untouched_state import UntouchedState


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(40, 60), nn.Linear(60, 2)).to(dtype)
    made[0].requires_grad_(False)
    return made


def through_data(parameter: Tensor) -> None:
    parameter.data[-1] += 1


def below_rounding_of_a_sum(parameter: Tensor) -> None:
    flat = parameter.detach().view(-1)
    flat[7] = torch.nextafter(flat[7], torch.tensor(10.0))


def swapped(parameter: Tensor) -> None:
    flat = parameter.detach().view(-1)
    flat[[3, 5]] = flat[[5, 3]]


@pytest.mark.parametrize("write", [through_data, below_rounding_of_a_sum, swapped])
@pytest.mark.parametrize("name", ["0.weight", "0.bias"])
def test_a_write_to_a_frozen_parameter_is_refused(write: Callable[[Tensor], None], name: str) -> None:
    made = model()
    untouched = UntouchedState(made)
    untouched.refuse_changes()
    write(made.get_parameter(name))
    with pytest.raises(HypothesisError, match=name):
        untouched.refuse_changes()


def test_trained_parameters_may_change_between_forward_passes_and_not_within() -> None:
    made = model()
    untouched, within = UntouchedState(made), UntouchedState(made, trained=True)
    through_data(made.get_parameter("1.weight"))
    untouched.refuse_changes()
    with pytest.raises(HypothesisError, match=r"1\.weight"):
        within.refuse_changes()


@given(place=st.integers(0, 2399), dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
def test_one_number_that_is_another_always_shows(place: int, dtype: torch.dtype) -> None:
    made = model(dtype)
    untouched = UntouchedState(made)
    made.get_parameter("0.weight").data.view(-1)[place] *= -1
    with pytest.raises(HypothesisError):
        untouched.refuse_changes()


def test_other_layouts_and_whole_numbers_are_watched() -> None:
    made = nn.Module()
    made.whole = nn.Parameter(torch.arange(5000), requires_grad=False)
    made.turned = nn.Parameter(torch.randn(30, 70).t(), requires_grad=False)
    made.one = nn.Parameter(torch.tensor(1.0), requires_grad=False)
    made.none = nn.Parameter(torch.empty(0), requires_grad=False)
    for name in ("whole", "turned", "one"):
        untouched = UntouchedState(made)
        made.get_parameter(name).data.add_(1)
        with pytest.raises(HypothesisError, match=name):
            untouched.refuse_changes()
