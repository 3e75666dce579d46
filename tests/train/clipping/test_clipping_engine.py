"""The clipper as it is meant to be used: what it adds up, and what it leaves alone."""

import copy
import pickle
from typing import Any

import pytest
import torch
from per_record import assert_clips_like_single_records, clipped, gradients_of_records, norms_of, rows, small, squares
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping import RULES, Clipper, LayerGradients, register_rule
from lethe.train.clipping.rules.linear import LinearGradients


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[6], [1, 5], [2, 2, 2], [1] * 6, [0, 3, 0, 3]])
def test_sums_do_not_depend_on_the_size_of_micro_batches(sizes: list[int]) -> None:
    model, batch = small(), rows()
    expected = clipped(Clipper(model, clip_norm=0.5), batch)
    clipper = Clipper(model, clip_norm=0.5)
    for part in batch.split(sizes):
        with clipper.recording():
            output = model(part)
        clipper.backward(squares(output))
        assert clipper.last_norms is not None
        assert clipper.last_norms.shape == (len(part),)
    for parameter, tensor in clipper.take().items():
        assert torch.allclose(tensor, expected[parameter], rtol=1e-12)
    assert all((tensor == 0).all() for tensor in clipper.take().values())


@pytest.mark.slow
def test_padding_is_not_counted_whatever_it_holds() -> None:
    model, batch = small(), rows()
    expected = clipped(Clipper(model, clip_norm=0.5), batch[:4])
    for filler in (0.0, 7.0, float("nan"), float("inf")):
        padded = batch.clone()
        padded[4:] = filler
        sums = clipped(Clipper(model, clip_norm=0.5), padded, counted=torch.arange(6) < 4)
        for parameter, tensor in sums.items():
            assert torch.allclose(tensor, expected[parameter], rtol=1e-12, atol=1e-15)


def test_nothing_stays_on_the_model() -> None:
    model = small()
    names = list(model.state_dict())
    clipper = Clipper(model)
    with clipper.recording():
        output = model(rows())
    clipper.backward(squares(output))
    assert list(model.state_dict()) == names
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    copy.deepcopy(model)
    pickle.loads(pickle.dumps(model))


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift, self.layer, self.fails = nn.Parameter(torch.zeros(4)), nn.Linear(4, 4), True

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.layer(given + self.shift)
        if self.fails:
            raise ValueError("on the way")
        return hidden


def test_a_forward_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model = Failing().double()
    clipper = Clipper(model)
    with pytest.raises(ValueError, match="on the way"), clipper.recording():
        model(rows())
    assert isinstance(model.shift, nn.Parameter)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    model.fails = False
    assert_clips_like_single_records(model, rows())


class Tree(nn.Module):
    """A layer used twice, one never, one without gradients, one frozen, one after a branch, and keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.never, self.constant, self.frozen, self.last = (nn.Linear(4, 4) for _ in range(5))
        self.frozen.requires_grad_(False)

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.twice(self.frozen(torch.tanh(self.twice(input=given))))
        with torch.no_grad():
            hidden = hidden + self.constant(given)
        hidden += given
        return self.last(hidden.relu_())


def test_layers_used_twice_never_without_gradients_and_frozen() -> None:
    torch.manual_seed(0)
    assert_clips_like_single_records(Tree().double(), rows())


@pytest.mark.filterwarnings("ignore:the clipper could not check everything")
def test_records_are_known_where_only_parts_of_the_model_are_called() -> None:
    model, batch = small(), rows()
    expected = clipped(Clipper(model, clip_norm=0.5), batch)
    clipper = Clipper(model, clip_norm=0.5)
    for _ in range(3):
        with clipper.recording():
            output = model[2](torch.relu(model[0](batch)))
        clipper.backward(squares(output))
        for parameter, tensor in clipper.take().items():
            assert torch.allclose(tensor, expected[parameter], rtol=1e-12)


def test_hooks_of_ones_own_are_part_of_the_model() -> None:
    model = small()

    def tripled(module: nn.Module, args: Any, output: Any) -> Any:
        return 3 * output

    model[0].register_forward_hook(tripled)
    model[2].register_forward_pre_hook(lambda module, args: (args[0] - 1,))
    expected = gradients_of_records(model, rows())
    clipper = Clipper(model, clip_norm=1e9)
    for _ in range(3):
        for parameter, tensor in clipped(clipper, rows()).items():
            assert torch.allclose(tensor, expected[parameter].sum(0), rtol=1e-10)


def test_freezing_between_steps() -> None:
    model = small()
    clipper = Clipper(model, clip_norm=0.5)
    assert len(clipped(clipper, rows())) == 4
    model[0].requires_grad_(False)
    expected = gradients_of_records(model, rows())
    sums = clipped(clipper, rows())
    assert sums.keys() == expected.keys()
    assert clipper.last_norms is not None
    assert torch.allclose(clipper.last_norms, norms_of(expected))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["module", "parameter", "frozen"])
def test_what_is_registered_elsewhere_between_steps_is_followed(how: str) -> None:
    torch.manual_seed(0)
    model, given = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)), torch.randn(5, 3)
    clipper = Clipper(model, clip_norm=1e6, verify=False)

    def sums() -> dict[nn.Parameter, Tensor]:
        with clipper.recording():
            losses = model(given).square().sum(1)
        clipper.backward(losses)
        return clipper.take()

    sums()
    if how == "module":
        model[1] = nn.Linear(4, 4)
    elif how == "parameter":
        model[1].weight = nn.Parameter(torch.randn(4, 4))
    else:
        model[1].weight.requires_grad_(False)
    found = sums()
    expected = torch.autograd.grad(model(given).square().sum(), list(found))
    assert set(found) == {parameter for parameter in model.parameters() if parameter.requires_grad}
    for sum_, gradient in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(sum_.float(), gradient)


def test_bfloat16_under_autocast() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(40, 16), nn.GELU(), nn.Linear(16, 3))
    batch = torch.randn(5, 2, 7)
    clipper, exact = Clipper(model, clip_norm=0.5), Clipper(model, clip_norm=0.5)
    expected = clipped(exact, batch)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16), clipper.recording():
            output = model(batch)
        clipper.backward(squares(output.float()))
        for parameter, tensor in clipper.take().items():
            assert tensor.dtype == torch.float64
            # bfloat16 has 8 bits; a few layers of it
            assert float((tensor - expected[parameter]).norm()) <= 0.05 * float(expected[parameter].norm()) + 1e-3


@pytest.mark.slow
def test_a_rule_of_ones_own_and_a_wrong_one() -> None:
    class Own(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input)

    class Plain(LayerGradients):
        """A rule that tells of no parts."""

        def _rows(self) -> Tensor:
            return torch.einsum("bp,bd->bpd", self.uses[0].grad_output, self.uses[0].inputs[0])

        def squared_norms(self) -> Tensor:
            return self._rows().square().sum((1, 2))

        def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
            return {"weight": torch.tensordot(weights, self._rows(), dims=1)}

        def per_record(self, name: str) -> Tensor:
            return self._rows()

    class Wrong(Plain):
        def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
            return {"weight": 1.1 * super().weighted_sums(weights)["weight"]}

    torch.manual_seed(0)
    model = nn.Sequential(Own(4, 3, bias=False), nn.Tanh(), nn.Linear(3, 2)).double()
    try:
        register_rule(Own, Plain)
        assert_clips_like_single_records(model, rows())
        register_rule(Own, Wrong)
        with pytest.raises(InputError, match="hand-written rule"):
            clipped(Clipper(model), rows())
    finally:
        RULES.pop(Own)
    assert RULES[nn.Linear] is LinearGradients
    with pytest.raises(InputError, match="layer_type"):
        register_rule(Own(1, 1), Plain)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="rule"):
        register_rule(Own, None)  # pyright: ignore[reportArgumentType]


def test_the_self_check_says_what_it_could_not_check() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, given: Tensor) -> Tensor:
            return self.layer(given) * torch.randint(1, 9, (len(given), 1))

    clipper = Clipper(Noisy().double())
    assert clipper.verified is None
    clipped(clipper, rows(1))
    assert clipper.verified is None  # one record alone cannot show that records are mixed
    with pytest.warns(UserWarning, match="output is random"):
        clipped(clipper, rows())
    assert clipper.verified is not None
    assert "random" in clipper.verified
    clipper = Clipper(small())
    clipped(clipper, rows())
    assert clipper.verified == "checked"


def test_the_self_check_draws_no_random_numbers_and_changes_no_buffer() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)).double()
    for verify in (True, False):
        torch.manual_seed(3)
        with Clipper(model, verify=verify).recording():
            model(rows())
        assert torch.equal(torch.rand(3), _rand_after_one_pass(model))


def _rand_after_one_pass(model: nn.Module) -> Tensor:
    torch.manual_seed(3)
    model(rows())
    return torch.rand(3)
