"""Models and losses in which records meet: refused, or trained record by record, every time; and what only looks like it."""

import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hostile_models import HOSTILE, LOSSES, RECORDS, Between, batches, centred, forget, rows, squares, trained
from how_many import by_night
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import HypothesisError, InputError, LetheError, RecordByRecordWarning
from lethe.train import fix_batch_norm
from lethe.train.clip import check as look
from lethe.train.clip.clipper import Clipper

APART = {"in_the_backward_pass": "vmap", "saved_coarsely": "alone"}
"""Those whose records meet in the backward pass of a batch only: they are trained, each alone."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", HOSTILE)
def test_records_that_meet_in_a_model_are_found(name: str) -> None:
    for seed in range(20 if by_night() else 2):
        forget()
        torch.manual_seed(seed)
        if name in APART:
            assert APART[name] in trained(Between(HOSTILE[name]), batches(seed)).ways
            continue
        with pytest.raises(LetheError, match=r"depends on the other records|keeps what it saw|writes|as a batch of one"):
            trained(Between(HOSTILE[name]), batches(seed))


@pytest.mark.parametrize("name", LOSSES)
def test_records_that_meet_in_a_loss_are_found(name: str) -> None:
    for seed in range(3):
        forget()
        torch.manual_seed(seed)
        try:
            assert trained(Between(), batches(seed), LOSSES[name]).ways != {"fast"}
        except LetheError as error:
            assert re.search(r"depends on the other records|keeps what it saw", str(error))  # noqa: PT017 - either will do


@pytest.mark.parametrize(
    ("change", "before", "records"),
    [("the fourth batch", 3, RECORDS), ("half as large again", 4, 13), ("mode", 2, RECORDS), ("parameters", 2, RECORDS)],
)
def test_a_model_that_begins_to_centre_later_is_found_at_the_next_look(change: str, before: int, records: int) -> None:
    state = {"mixing": False}
    model = Between(lambda model, hidden: centred(hidden) if state["mixing"] else hidden).eval()
    clipper = trained(model, batches(0, before))
    state["mixing"] = True
    model.train(change == "mode")
    model.last.bias.requires_grad_(change != "parameters")
    for seed in (5, 6):  # a check that failed is made again
        with pytest.raises(InputError, match="depends on the other records"):
            clipper.add(rows(seed, records))
    assert not any(tensor.any() for tensor in clipper.take().values())


@pytest.mark.parametrize("name", ["over the detached maximum", "in-batch negatives"])
def test_records_cannot_meet_where_it_is_enforced(name: str) -> None:
    """The sum is that of records alone, whatever the model makes of a batch."""
    model = Between(HOSTILE[name])
    clipper = Clipper(model, lambda batch: squares(model(batch)), 1e9, isolation="enforced")
    clipper.add(rows(0))
    assert not clipper.checked
    assert not trained(Between(HOSTILE["with_a_buffer"]), batches(0), isolation="declared").checked  # nor is anything compared there
    sums = clipper.take()
    alone = torch.stack([squares(model(row[None])) for row in rows(0)]).sum()
    for parameter, gradient in zip(sums, torch.autograd.grad(alone, list(sums)), strict=True):
        torch.testing.assert_close(sums[parameter], gradient, rtol=1e-4, atol=1e-9)


RANDOM: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda hidden: hidden,
    "dropout": lambda hidden: functional.dropout(hidden, 0.5),
    "layers that are left out": lambda hidden: hidden if torch.rand([]) < 0.5 else 2 * hidden,
    "noise": lambda hidden: hidden + torch.rand_like(hidden),
}
SAME = ("nothing", "dropout", "layers that are left out")


@pytest.mark.parametrize(("draws", "masked"), [(name, masked) for name in RANDOM for masked in (False, True) if masked or name in SAME])
def test_padding_that_leaks_is_found_by_records_that_were_collated_alone(draws: str, masked: bool) -> None:
    """What is drawn besides dropout may be another at another length, as noise is, and is no reason to refuse."""
    torch.manual_seed(0)
    lengths = torch.arange(RECORDS) % 5 + 1
    padded = torch.randint(1, 9, (RECORDS, 6)) * (torch.arange(6) < lengths[:, None])
    table, head = nn.Embedding(9, 4).double(), nn.Linear(4, 2).double()

    def losses(batch: Tensor) -> Tensor:
        counted = (batch > 0).double() if masked else torch.ones_like(batch).double()
        return squares(head((RANDOM[draws](table(batch)) * counted[..., None]).sum(1) / counted.sum(1, keepdim=True)))

    clipper = Clipper(nn.ModuleList([table, head]), losses)
    collated = {record: padded[record : record + 1, : int(lengths[record])] for record in range(RECORDS)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        if masked:
            clipper.add(padded, collated=collated)
            return
        with pytest.raises(InputError, match="depends on how far its batch is padded"):
            clipper.add(padded, collated=collated)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(2, 3, num_layers=2, dropout=0.5, batch_first=True).double()

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given.view(-1, 2, 2))[0]


def with_a_table(model: Any, hidden: Tensor) -> Tensor:
    model.table = torch.arange(float(WIDTH)).double().sin()  # of its shape alone
    return hidden * model.table


def locked() -> nn.Module:
    model = Between()
    vars(model)["lock"] = threading.Lock()  # which cannot be copied
    return model


WIDTH = 5
HONEST: dict[str, Callable[[], nn.Module]] = {
    "a table made for a shape": lambda: Between(with_a_table),
    "a squeeze of nothing": lambda: Between(lambda model, hidden: hidden.squeeze(2) if hidden.dim() > 2 else hidden),
    "a head of zeros": lambda: Between(zero_head=True),
    "what it saw last, for a picture": lambda: Between(lambda model, hidden: setattr(model, "seen", hidden.detach()) or hidden),
    "old weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3).double())),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8).double(), nn.Dropout(0.5), nn.Linear(8, 2).double()),
    "noise": lambda: Between(lambda model, hidden: hidden + 0.1 * torch.randn_like(hidden)),
    "noise of a shape": lambda: Between(lambda model, hidden: hidden + torch.randn(len(hidden), WIDTH, dtype=hidden.dtype)),
    "recurrent layers that drop": Recurrent,
    "batch normalisation in eval mode": lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).double().eval(),
    "a lock": locked,
}


@pytest.mark.parametrize("name", HONEST)
def test_what_mixes_nothing_is_trained_in_the_fast_way(name: str) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        clipper = trained(HONEST[name](), batches(seed))
        assert clipper.ways == {"fast"}
        assert clipper.checked


@pytest.mark.parametrize(("name", "kept"), [("with_one_record_of_the_first_batch", "memory"), ("with_a_scale_of_the_first_batch", "scale")])
def test_what_the_first_batch_leaves_is_found_by_a_model_that_saw_nothing(name: str, kept: str) -> None:
    """In whichever attribute; where a batch is one record, it hides nothing from the next."""
    model = Between(HOSTILE[name])
    clipper = Clipper(model, lambda batch: squares(model(batch)))
    clipper.add(rows(0, 1))
    with pytest.raises(HypothesisError, match=f"it keeps {kept}"):
        clipper.add(rows(1))


def test_the_losses_of_all_records_are_compared_with_those_of_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The few that are looked at alone are none of the pair that meets."""

    def between(model: Any, hidden: Tensor) -> Tensor:
        return torch.cat([hidden[:1] + hidden[-1:], hidden[1:]]) if len(hidden) == RECORDS else hidden

    monkeypatch.setattr(look, "sample", lambda usable, count: list(usable) if count == RECORDS else [3, 4, 5])
    model = Between(between)
    with pytest.raises(InputError, match=r"record 0 is .* in half of it: it depends on the other records"):
        Clipper(model, lambda batch: squares(model(batch))).add(rows(0))


def test_layers_that_came_to_mix_later_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double().eval()
    clipper = trained(model, batches(0, 1))
    model.train()
    with pytest.raises(InputError, match="normalises a record by the others"):
        clipper.add(rows(1))


def test_parameters_of_other_modules_are_refused_and_get_no_gradient() -> None:
    body, head = nn.Linear(4, 3), nn.Linear(3, 1)
    clipper = Clipper(body, lambda rows: head(body(rows))[:, 0])
    with pytest.raises(InputError, match=r"parameter of shape \(1, 3\) that requires grad and is not the model's"):
        clipper.add(torch.randn(5, 4))
    assert head.weight.grad is None
    head.requires_grad_(False)
    clipper.add(torch.randn(5, 4))


@pytest.mark.parametrize(
    ("layer", "shape", "groups"),
    [
        (nn.BatchNorm1d(32), (5, 32), 4),
        (nn.BatchNorm2d(6), (5, 6, 3, 3), 3),
        (nn.BatchNorm2d(7), (5, 7, 3, 3), 1),
        (nn.BatchNorm3d(1, affine=False), (5, 1, 2, 2, 2), 1),
    ],
)
def test_records_no_longer_meet(layer: nn.Module, shape: tuple[int, ...], groups: int) -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(layer)).train()
    fixed = fix_batch_norm(model)
    assert fixed is model
    norm = model[1][0]
    assert isinstance(norm, nn.GroupNorm)
    assert norm.num_groups == groups
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    whole = model(rows)
    assert torch.allclose(torch.cat([model(row[None]) for row in rows]), whole, atol=1e-5)
    assert whole.std() > 0.5  # no group of one number alone, which would become 0
    assert [id(parameter) for parameter in model.parameters()] == [id(parameter) for parameter in layer.parameters()]
    assert isinstance(fix_batch_norm(layer), nn.GroupNorm)  # a model that is one comes back as another
