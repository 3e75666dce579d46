"""Trained parameters that are read outside of the forward pass of their own layer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from per_record import assert_clips_like_single_records
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune
from torch.nn.utils import weight_norm as older_weight_norm

import lethe
from lethe.errors import LetheError
from lethe.train import fit
from lethe.train.clipping import Clipper

ROWS = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
SEQUENCES = torch.randn(5, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(7, (5, 4), generator=torch.Generator().manual_seed(1))

Forward = Callable[[Any, Tensor], Tensor]


class Built(nn.Module):
    """Layers and parameters by name, and any forward pass of them."""

    def __init__(self, forward: Forward, **parts: Any) -> None:
        super().__init__()
        self.passed = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, given: Tensor) -> Tensor:
        return self.passed(self, given)


def weights(*shapes: tuple[int, ...]) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(shape)) for shape in shapes]


def adapted(m: Any, x: Tensor) -> Tensor:
    """Low-rank adapters of a frozen layer, kept in dictionaries, scaled by a vector that is kept in another."""
    hidden = functional.linear(x, m.base.weight.detach())
    return hidden + (x @ m.adapters["down"].T @ m.adapters["up"].T) * m.scales["default"]


def scaled_in_turn(m: Any, x: Tensor) -> Tensor:
    scale: Any = 1
    for vector in m.scales.values():
        scale = scale * vector.flatten()
    return m.base(x) * scale


def halved_in_place(m: Any, x: Tensor) -> Tensor:
    table = m.base.weight * 2
    table /= 3
    return m.base(x) + x @ table.T


def met_and_changed(m: Any, x: Tensor) -> Tensor:
    """The table is changed in place after it met the records."""
    table = m.base.weight.sum(0) * 2
    hidden = m.base(x) + table
    table /= 3
    return hidden


MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "a list of parameters": (
        lambda: Built(lambda m, x: torch.tanh(x @ m.list[0]) @ m.list[1], list=nn.ParameterList(weights((4, 4), (4, 4)))),
        ROWS,
    ),
    "adapters in dictionaries": (
        lambda: Built(
            adapted,
            base=nn.Linear(4, 4, bias=False).requires_grad_(False),
            adapters=nn.ParameterDict({"down": weights((2, 4))[0], "up": weights((4, 2))[0]}),
            scales=nn.ParameterDict({"default": weights((1, 4))[0]}),
        ),
        SEQUENCES[:, :, :4],
    ),
    "scales of several adapters": (
        lambda: Built(
            scaled_in_turn, base=nn.Linear(4, 4), scales=nn.ParameterDict({"one": weights((4, 1))[0], "two": weights((4, 1))[0]})
        ),
        ROWS,
    ),
    "a weight of a layer that is never called": (
        lambda: Built(lambda m, x: functional.linear(torch.tanh(m.layer(x)), m.other.weight), layer=nn.Linear(4, 4), other=nn.Linear(4, 3)),
        ROWS,
    ),
    "tied by hand": (
        lambda: Built(lambda m, x: functional.linear(torch.tanh(m.table(x)), m.table.weight).flatten(1), table=nn.Embedding(7, 4)),
        TOKENS,
    ),
    "a projection inside attention": (
        lambda: Built(lambda m, x: m.attention.out_proj(m.attention(x, x, x)[0]), attention=nn.MultiheadAttention(8, 2, batch_first=True)),
        SEQUENCES,
    ),
    "a convolution's weight": (
        lambda: Built(
            lambda m, x: functional.conv1d(m.conv(x), m.conv.weight, padding=1, groups=4), conv=nn.Conv1d(4, 4, 3, padding=1, groups=4)
        ),
        SEQUENCES,
    ),
    "a weight of its own, changed in place": (lambda: Built(halved_in_place, base=nn.Linear(4, 4)), ROWS),
    "a weight in a block": (
        lambda: Built(
            lambda m, x: m.block(x) * m.block[0].weight.norm(dim=1)[:3], block=nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        ),
        ROWS,
    ),
}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_followed_wherever_they_are_read(name: str) -> None:
    torch.manual_seed(0)
    build, batch = MODELS[name]
    model = build().double()
    before = dict(model.named_parameters())
    clipper = assert_clips_like_single_records(model, batch)
    assert clipper.way == "per layer"
    assert clipper.verified == "checked"
    assert_clips_like_single_records(model, batch, verify=False)
    assert_clips_like_single_records(model, batch[:1], verify=False)
    after = dict(model.named_parameters())
    assert before.keys() == after.keys()
    assert all(after[name] is parameter for name, parameter in before.items())


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("change", ["weight_norm", "pruned"])
def test_weights_that_a_hook_computes(change: str) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 5)
    layer = older_weight_norm(layer) if change == "weight_norm" else prune.random_unstructured(layer, "weight", amount=0.5)
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(5, 3)).double()
    assert_clips_like_single_records(model, ROWS)
    assert not isinstance(layer.weight, nn.Parameter)
    assert type(layer.weight) is Tensor
    run = lethe.Run(records=5, batches=lethe.Full(), steps=3, step_size=0.1, clip_norm=1.0, noise_multiplier=1e-9, release="all")
    fitted = fit(model, nn.CrossEntropyLoss(reduction="none"), (ROWS, torch.arange(5) % 3), run)
    assert fitted.report.gradients == "per layer"
    assert fitted.checked == "checked"


def test_a_hook_may_read_the_weight_of_its_layer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    model[0].register_forward_hook(lambda module, args, output: output + module.weight.sum())
    assert_clips_like_single_records(model, ROWS)


@pytest.mark.parametrize("verify", [True, False])
def test_what_was_changed_in_place_after_it_met_the_records_is_refused(verify: bool) -> None:
    torch.manual_seed(0)
    model = Built(met_and_changed, base=nn.Linear(4, 4)).double()
    clipper = Clipper(model, verify=verify)
    with clipper.recording():
        output = model(ROWS)
    with pytest.raises(LetheError, match=r"in place|is off by"):
        clipper.backward(output.sum(1))


def test_an_interrupted_forward_pass_leaves_the_parameters() -> None:
    def failing(m: Any, x: Tensor) -> Tensor:
        m.base(x)
        raise KeyError("on the way")

    model = Built(failing, base=nn.Linear(4, 4)).double()
    before = list(model.parameters())
    with pytest.raises(KeyError), Clipper(model).recording():
        model(ROWS)
    assert all(now is then for now, then in zip(model.parameters(), before, strict=True))
