"""Compiled models run eagerly while they are recorded; hooks on saved tensors are refused, inside and around."""

from typing import Any

import pytest
import torch
from per_record import clipped, gradients_of_records, norms_of, rows, small, squares
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from lethe.errors import InputError
from lethe.train.clipping import Clipper


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
