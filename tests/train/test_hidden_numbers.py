"""What a model may carry beside its state dict: bytes behind parameters, plain attributes, sparse buffers, gradients left over."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from lethe.train.model_state.changed_attributes import attribute_digests, changed_attributes
from lethe.train.model_state.hidden_numbers import hidden_numbers
from networks import COLUMNS, CROSS_ENTROPY, make_data, make_network, make_network_run, one_thread
from private_loops import Loop
from torch import Tensor, nn

from lethe.errors import HypothesisError
from lethe.train import fit
from lethe.train.core.tensor_fingerprint import fingerprint, same_numbers

RUN = make_network_run(noise_multiplier=1.0)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


class Keeping(nn.Module):
    """Does something besides with what it is given, from its third call on; calls of the self-check are taken back."""

    def __init__(self, keep: Callable[[Any, Tensor], object]) -> None:
        super().__init__()
        self.network, self.calls = make_network(), 0
        self.keep = keep
        self.register_buffer("mask", torch.ones(3))

    def forward(self, given: Tensor) -> Tensor:
        self.calls += 1
        if self.calls >= 3 and len(given):
            self.keep(self, given.detach())
        return self.network(given)


def behind_a_parameter(model: Any, given: Tensor) -> None:
    weight = model.network[0].weight
    weight.data = torch.cat([weight.data.flatten(), given.flatten()])[: weight.numel()].view_as(weight)


def between_the_rows(model: Any, given: Tensor) -> None:
    weight = model.network[0].weight
    wide = torch.ones(len(weight), weight.shape[1] + 1, dtype=weight.dtype) * given[0, 0]
    wide[:, :-1] = weight.data
    weight.data = wide[:, :-1]


def behind_a_buffer(model: Any, given: Tensor) -> None:
    model._buffers["mask"] = torch.cat([torch.ones(3), given.flatten().float()])[:3]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("keep", [behind_a_parameter, between_the_rows, behind_a_buffer])
def test_records_behind_parameters_and_buffers_are_refused(keep: Callable[[Any, Tensor], None]) -> None:
    """Their values are what they were, bit for bit; but the file of the state dict holds the record."""
    model = Keeping(keep)
    with pytest.raises(HypothesisError, match="came to lie in a longer tensor"):
        fit(model, CROSS_ENTROPY, make_data(), RUN, seed=0)
    if keep is behind_a_parameter:
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        assert any(row.numpy().tobytes() in file.getvalue() for row in make_data()[0])
    loop = Loop(RUN, model=Keeping(keep))
    with pytest.raises(HypothesisError, match="came to lie in a longer tensor"):
        loop.whole()


@pytest.mark.slow
def test_models_whose_parameters_share_one_storage_are_trained() -> None:
    model = make_network()
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()] + [torch.ones(2, dtype=torch.float64)])
    place = 0
    for parameter in model.parameters():
        parameter.data = flat[place : place + parameter.numel()].view_as(parameter)
        place += parameter.numel()
    assert hidden_numbers(model)  # what was there before tells nothing
    fit(model, CROSS_ENTROPY, make_data(), RUN, seed=0)
    assert not hidden_numbers(make_network())


HONEST_OR_NOT: dict[str, Callable[[Any, Tensor], object]] = {
    "text": lambda model, given: setattr(model, "memory", str(given.tolist())),
    "number": lambda model, given: setattr(model, "memory", float(given.abs().max())),
    "bytes in a file": lambda model, given: setattr(model, "memory", io.BytesIO(given.numpy().tobytes())),
    "data set": lambda model, given: setattr(model, "memory", torch.utils.data.TensorDataset(given)),
    "keys": lambda model, given: setattr(model, "memory", dict.fromkeys(map(str, given.flatten().tolist()))),
    "generator": lambda model, given: setattr(model, "memory", torch.Generator().manual_seed(int(given.nan_to_num().abs().sum() * 1e6))),
}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST_OR_NOT)
def test_attributes_that_change_are_declared_by_name(name: str) -> None:
    done = fit(Keeping(HONEST_OR_NOT[name]), CROSS_ENTROPY, make_data(), RUN, seed=0)
    (statement,) = [statement for statement in done.declared if "changed during training" in statement]
    assert "calls" in statement
    assert "memory" in statement


@pytest.mark.nightly(by_day="test_attributes_that_change_are_declared_by_name")
def test_a_loop_declares_them_and_what_its_optimiser_rests_on() -> None:
    loop = Loop(RUN, model=Keeping(lambda model, given: None))
    loop.whole()
    assert any("during training, calls, tell nothing" in statement for statement in loop.engine.declared)
    assert any("no learning rate is chosen by a training loss" in statement for statement in loop.engine.declared)
    plain = fit(make_network(), CROSS_ENTROPY, make_data(), RUN, seed=0).declared
    assert not any("changed during training" in statement or "learning rate" in statement for statement in plain)


def test_digests_are_of_values() -> None:
    model: Any = Keeping(lambda model, given: None)
    model.table = {"a": [1.5, "text"], "b": torch.ones(2)}
    before = attribute_digests(model)
    model.table = {"a": [1.5, "te" + "xt"], "b": torch.ones(2)}
    assert changed_attributes(before, attribute_digests(model)) is None
    model.table = {"a": [1.5, "text"], "b": torch.tensor([1.0, 2.0])}
    assert "table" in (changed_attributes(before, attribute_digests(model)) or "")


@pytest.mark.slow
def test_gradients_that_a_forward_pass_left_are_gone() -> None:
    def leave(model: Any, given: Tensor) -> None:
        model.network[0].weight.grad = given.flatten()[:1].expand(5, COLUMNS).clone()

    model = fit(Keeping(leave), CROSS_ENTROPY, make_data(), RUN, seed=0).model
    assert all(parameter.grad is None for parameter in model.parameters())


LAYOUTS: tuple[Callable[[Tensor], Tensor], ...] = (Tensor.to_sparse, Tensor.to_sparse_csc, lambda dense: dense)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
@pytest.mark.parametrize("laid", LAYOUTS)
def test_sparse_tensors_are_compared_by_value(laid: Callable[[Tensor], Tensor]) -> None:
    one, other = torch.eye(3), torch.eye(3)
    other[0, 0] = 2
    assert same_numbers([laid(one)], [laid(one.clone())]) == [True]
    assert fingerprint(laid(one)) == fingerprint(laid(one.clone()))
    assert same_numbers([laid(one)], [laid(other)]) == [False]
    assert fingerprint(laid(one)) != fingerprint(laid(other))
    if laid is Tensor.to_sparse_csc:
        return  # torch copies no model with such a buffer, and the self-check says so
    model = Keeping(lambda model, given: None)
    model.register_buffer("graph", laid(one))
    assert fit(model, CROSS_ENTROPY, make_data(), RUN, seed=0).run.steps


@pytest.mark.slow
def test_a_sparse_buffer_that_keeps_records_is_refused() -> None:
    model = Keeping(lambda model, given: model._buffers.update(graph=given.to_sparse()))
    model.register_buffer("graph", make_data()[0].to_sparse())
    with pytest.raises(HypothesisError, match="graph changed"):
        fit(model, CROSS_ENTROPY, make_data(), RUN, seed=0)
