"""Compiled models run eagerly while they are recorded; hooks on saved tensors are refused, inside and around."""

from typing import Any

import pytest
import torch
from per_record import clipped, gradients_of_records, norms_of, rows, small, squares
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from lethe.errors import InputError
from lethe.train.clipping import Clipper
from lethe.train.clipping.checks.surroundings import Unkept, surroundings


@pytest.mark.nightly(by_day="test_record_by_record_a_compiled_model_is_exact")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["torch.compile(model)", "torch.compile(layer)", "model.compile()", "a compiled function"])
def test_compiled_models_are_clipped_as_they_are_uncompiled(way: str) -> None:
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    model: Any = small()
    expected = gradients_of_records(model, rows())
    clip_norm = float(norms_of(expected).median())
    plain = clipped(Clipper(model, clip_norm=clip_norm), rows())
    try:
        if way == "torch.compile(model)":
            model = torch.compile(model, backend=backend)
        elif way == "torch.compile(layer)":
            model[0] = torch.compile(model[0], backend=backend)
        elif way == "model.compile()":
            model.compile(backend=backend)
        else:
            model[1].forward = torch.compile(torch.relu, backend=backend)
        clipper = Clipper(model, clip_norm=clip_norm)
        for _ in range(3):
            told = clipped(clipper, rows())
            assert all(torch.equal(one, other) for one, other in zip(told.values(), plain.values(), strict=True))
        assert clipper.verified == "checked"
        assert not compiled
        model(rows())
        assert compiled or way == "model.compile()"  # outside of recordings all is compiled as before; such a call of a Sequential never is
    finally:
        torch.compiler.reset()


class Offloading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = small()

    def forward(self, given: Tensor) -> Tensor:
        with save_on_cpu():
            return self.layers(given)


@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
def test_hooks_on_saved_tensors_are_refused(verify: bool) -> None:
    with pytest.raises(InputError, match="saved_tensors_hooks"):
        clipped(Clipper(Offloading(), verify=verify), rows())
    clipper = Clipper(small(), verify=verify)
    around = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with around, pytest.raises(InputError, match="saved_tensors_hooks"), clipper.recording():
        clipper.model(rows())
    clipped(clipper, rows())
    with save_on_cpu():  # and outside they work as before
        squares(clipper.model(rows())).sum().backward()


def test_an_error_of_the_model_stays_what_it_is() -> None:
    clipper = Clipper(small())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        clipped(clipper, torch.randn(6, 5).double())


class Differentiating(nn.Module):
    """It adds the forces of its inputs, by a derivative of its own, or goes without; and may centre them over the batch."""

    def __init__(self, *, mixes: bool, goes_without: bool) -> None:
        super().__init__()
        self.layers, self.mixes, self.goes_without = small(), mixes, goes_without

    def forward(self, given: Tensor) -> Tensor:
        with torch.enable_grad():
            points = given.detach().requires_grad_()
            try:
                (forces,) = torch.autograd.grad(points.pow(3).sum(), points)
            except RuntimeError:
                if not self.goes_without:
                    raise
                return self.layers(given)
        return self.layers(given + (forces - forces.mean(0) if self.mixes else forces))


@pytest.mark.parametrize("goes_without", [False, True])
def test_a_model_that_differentiates_on_its_own_is_checked_as_any_other(goes_without: bool) -> None:
    clipper = Clipper(Differentiating(mixes=False, goes_without=goes_without))
    clipped(clipper, rows())
    assert clipper.verified == "checked"
    with pytest.raises(InputError, match="depends on the other records"):
        clipped(Clipper(Differentiating(mixes=True, goes_without=goes_without)), rows())


def test_a_pass_for_its_outputs_alone_keeps_nothing_unless_it_must() -> None:
    unkept, made, again = Unkept(), list[Tensor](), list[int]()

    def called() -> Tensor:
        made.append(torch.ones(3, requires_grad=True))
        return made[-1].exp().sin()

    def differentiating() -> Tensor:
        return torch.autograd.grad(called().sum(), made[-1])[0]

    with surroundings():
        output = unkept(called, lambda: again.append(1))
        with pytest.raises(RuntimeError, match="nothing is kept"):
            torch.autograd.grad(output.sum(), made[0])
        assert (len(made), again) == (1, [])
        expected = torch.ones(3).exp().cos() * torch.ones(3).exp()
        assert torch.allclose(unkept(differentiating, lambda: again.append(1)), expected)
        assert (len(made), again) == (3, [1])
        assert unkept(called, lambda: again.append(1)).grad_fn is not None
        assert (len(made), again) == (4, [1])

    def offloading_after() -> None:
        with surroundings():
            Unkept()(called, again.clear)
            Offloading()(rows())

    with pytest.raises(InputError, match="saved_tensors_hooks"):  # as before the pass
        offloading_after()
