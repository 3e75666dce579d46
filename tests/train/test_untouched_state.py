"""Buffers and parameters are compared by value: however they were written."""

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lethe.train.model_state import untouched_state
from lethe.train.model_state.named_parts import NamedParts
from lethe.train.model_state.untouched_state import UntouchedState
from networks import COLUMNS, CROSS_ENTROPY, make_data, make_network, make_network_run
from private_loops import Loop
from torch import Tensor, nn

from lethe.errors import HypothesisError
from lethe.train import fit


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


@pytest.mark.slow
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


class Shifted(nn.Module):
    """A network with a frozen parameter and a buffer that it adds to its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()
        self.frozen = nn.Parameter(torch.zeros(COLUMNS, dtype=torch.float64), requires_grad=False)
        self.buffer = nn.Buffer(torch.zeros(COLUMNS, dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        return self.network(rows + self.frozen + self.buffer)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frozen", "buffer"])
def test_what_is_written_for_one_step_and_taken_back_is_refused(name: str) -> None:
    """The clipped sum would move by more than the clip norm: the gradients of all records follow what was written."""
    made = Shifted()
    parameters = [parameter for parameter in made.parameters() if parameter.requires_grad]
    loop = Loop(model=made, optimizer=lambda _: torch.optim.SGD(parameters, lr=0.5))
    batches = enumerate(loop.loader, start=1)
    for _, (inputs, targets) in itertools.islice(batches, 4):
        loop.use(inputs, targets)
    _, (inputs, targets) = next(batches)
    getattr(made, name).data += inputs.mean(0)
    losses = loop.losses(inputs, targets)
    with pytest.raises(HypothesisError, match=f"{name} changed"):
        loop.engine.backward(losses)


@pytest.mark.slow
def test_and_so_by_the_callback_of_fit() -> None:
    made = Shifted()

    def write(step: int, steps: int) -> None:
        made.buffer[0] = 1.0 if step == 4 else 0.0

    with pytest.raises(HypothesisError, match="buffer changed"):
        fit(made, CROSS_ENTROPY, make_data(), make_network_run(noise_multiplier=1.0), progress=write)


class Remembers(nn.Module):
    """A network that adds an attribute to its inputs; a tensor is set from outside, for some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()
        self.added: Tensor | float = torch.zeros(COLUMNS, dtype=torch.float64)

    def forward(self, rows: Tensor) -> Tensor:
        return self.network(rows + self.added)


def five_steps(put: Callable[[Tensor], Tensor | float]) -> Loop:
    """A loop that puts something into an attribute before the forward pass of step 5, and takes it out after it."""
    made = Remembers()
    before = made.added
    loop = Loop(model=made, optimizer=lambda _: torch.optim.SGD(made.parameters(), lr=0.5))
    for step, (inputs, targets) in itertools.islice(enumerate(loop.loader, start=1), 6):
        made.added = put(inputs) if step == 5 else before
        loop.use(inputs, targets)
    made.added = before
    return loop


@pytest.mark.slow
def test_a_tensor_in_an_attribute_for_one_step_is_refused() -> None:
    """It moves all gradients of its batch, and is gone at the end."""
    with pytest.raises(HypothesisError, match="added: a module kept something"):
        five_steps(lambda inputs: inputs.mean(0))


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_looks_at_the_same_attributes_see_what_is_written_in_them(known: bool) -> None:
    made: nn.Module = model()
    made.memory = torch.zeros(3)
    parts = NamedParts(made)
    untouched = UntouchedState(made, attributes=True)

    def look() -> None:
        untouched.look(parts.looked() if known else parts.now())

    look()
    look()
    made.memory += 1
    for _ in range(2):  # whoever goes on after an error is told again
        with pytest.raises(HypothesisError, match="memory"):
            look()
    made.memory -= 1
    look()
    made.memory = torch.ones(3)
    with pytest.raises(HypothesisError, match="memory"):
        look()
    made.memory = torch.zeros(3)
    look()


def test_a_number_in_an_attribute_for_one_step_is_declared() -> None:
    loop = five_steps(lambda inputs: 1.5)
    assert any("added" in said for said in loop.engine.declared)
    loop = five_steps(lambda inputs: torch.zeros(COLUMNS, dtype=torch.float64))  # as it was, by value
    assert not any("added" in said for said in loop.engine.declared)


def test_many_frozen_numbers_are_compared_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untouched_state, "_FEW", 10)
    made = nn.Sequential(nn.Linear(1, 1), nn.Linear(3, 5).requires_grad_(False))
    untouched = UntouchedState(made)
    through_data(made.get_parameter("1.weight"))
    untouched.refuse_changes_after(3)
    with pytest.raises(HypothesisError, match=r"1\.weight"):
        untouched.refuse_changes_after(4)
