"""What the fast way follows: checkpoints, autocast, compiled layers, lists of parameters, quantised bases, several rows a record."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from lawful_sums import CLIP, RECORDS, Model, batch_of, clipped, flat, losses_of, near, truth
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper

F64 = torch.float64


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_activation_checkpoints_are_followed(reentrant: bool, dropout: float) -> None:
    model, batch = Model(), batch_of()
    model.scale.requires_grad_(False)  # what the whole model owns would be computed by calling it again
    drop = nn.Dropout(dropout)

    def between(block: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
        hidden = hidden if hidden.requires_grad else hidden.requires_grad_()
        return checkpoint(lambda given: drop(block(given)), hidden, use_reentrant=reentrant)

    def plain(block: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
        return drop(block(hidden))

    sums: list[Tensor] = []
    for kind in (between, plain):
        model.between = kind
        clipper = Clipper(model, losses_of(model), CLIP)
        clipper.add(batch)  # with the check
        clipper.take()
        clipper._schedule._batches = 4
        torch.manual_seed(5)
        clipper.add(batch)
        sums.append(flat(clipper.take()))
        assert clipper.ways == {"fast"}
    near(sums[0], sums[1])


@pytest.mark.parametrize("isolation", ["checked", "enforced", "declared"])
def test_autocast_changes_gradients_by_its_rounding_alone(isolation: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))
    batch = torch.randn(RECORDS, 8)

    def losses(rows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(rows).float().square().sum(1)

    clipper = Clipper(model, losses, 0.5, isolation=isolation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)  # a normalisation under autocast is more than vmap can
        clipper.add(batch)
    sums = flat(clipper.take())
    plain = Clipper(model, lambda rows: model(rows).square().sum(1), 0.5)
    plain.add(batch)
    near(sums, flat(plain.take()), 0.05)
    assert float(sums.norm()) <= RECORDS * 0.5
    if isolation != "enforced":
        assert clipper.ways == {"fast"}
        assert (clipper.precision, plain.precision) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("layout", ["blocks", "interleaved"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_several_rows_a_record_are_followed_in_either_order(layout: str, dropout: float) -> None:
    torch.manual_seed(0)
    layer, drop, head = nn.Linear(4, 5).to(F64), nn.Dropout(dropout), nn.Linear(5, 2).to(F64)
    model = nn.ModuleList([layer, drop, head])

    def losses(pairs: Tensor) -> Tensor:  # (B, 2, 4)
        given = pairs.flatten(0, 1) if layout == "interleaved" else pairs.transpose(0, 1).flatten(0, 1)
        outputs = head(drop(torch.tanh(layer(given))))
        one, other = outputs.unflatten(0, (len(pairs), 2)).unbind(1) if layout == "interleaved" else outputs.chunk(2)
        return (one - 3 * other).square().sum(1)

    batch = torch.randn(RECORDS, 2, 4, dtype=F64)
    clipper = Clipper(model, losses, CLIP)
    clipper.add(batch)
    assert clipper.ways == {"fast"}
    if not dropout:
        rows = [torch.autograd.grad(losses(batch[record : record + 1]).sum(), list(model.parameters())) for record in range(RECORDS)]
        near(flat(clipper.take()), clipped(torch.stack([torch.cat([tensor.flatten() for tensor in row]) for row in rows])))


def test_a_way_that_was_left_is_said_once() -> None:
    model = Model("alone")
    clipper = Clipper(model, losses_of(model), CLIP)
    with pytest.warns(RecordByRecordWarning, match="record by record") as told:
        clipper.add(batch_of())
    assert len([one for one in told if issubclass(one.category, RecordByRecordWarning)]) == 1
    clipper.add(batch_of())  # a second warning would be an error
    assert clipper.ways == {"alone"}


def test_an_error_that_comes_and_goes_is_no_reason_to_leave_a_way() -> None:
    model, failed = Model(), list[int]()

    def losses(tokens: Tensor) -> Tensor:
        if len(tokens) > 1 and not failed:
            failed.append(1)
            raise RuntimeError("out of memory, this once")
        return losses_of(model)(tokens)

    clipper = Clipper(model, losses, CLIP)
    with pytest.raises(RuntimeError, match="this once"):
        clipper.add(batch_of())
    clipper.add(batch_of())
    assert clipper.ways == {"fast"}
    near(flat(clipper.take()), clipped(truth(model, batch_of())))
