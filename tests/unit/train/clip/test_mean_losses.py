"""One number for a batch: its parts are those of the records, by items or by records, or each record is computed alone."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import Group
from lethe.train.clip.isolated import MeanLoss

B, T, WORDS = 6, 5, 7


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(WORDS, 4), nn.Conv1d(T, T, 1), nn.LayerNorm(4), nn.Linear(4, WORDS)).double()


def batch(*, even: bool = False, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, WORDS, (B, T), generator=generator)
    kept = torch.arange(T) < (3 if even else 1 + torch.arange(B)[:, None] % T)
    return {"words": torch.randint(0, WORDS, (B, T), generator=generator), "labels": labels.masked_fill(~kept, -100)}


def over_items(model: nn.Module) -> Any:
    def loss(given: dict[str, Tensor]) -> MeanLoss:
        logits = model(given["words"]).flatten(0, 1)
        return MeanLoss(functional.cross_entropy(logits, given["labels"].flatten()), (given["labels"] >= 0).sum(1))

    return loss


def over_records(model: nn.Module) -> Any:
    """The counts are there, and mean nothing."""

    def loss(given: dict[str, Tensor]) -> MeanLoss:
        return MeanLoss(model(given["words"]).square().flatten(1).sum(1).sqrt().mean(), (given["labels"] >= 0).sum(1))

    return loss


def sorted_over_records(model: nn.Module) -> Any:
    def loss(given: dict[str, Tensor]) -> MeanLoss:
        each = model(given["words"]).square().flatten(1).sum(1)
        return MeanLoss((each.sort().values * torch.arange(1, 1 + len(each))).mean(), (given["labels"] >= 0).sum(1))

    return loss


def by_hand(model: nn.Module, losses: Any, given: dict[str, Tensor], units: list[list[int]] | None = None) -> tuple[float, list[Tensor]]:
    """The middle norm of the gradients of records alone, or of the means of units; and the sum of those, clipped to it."""
    trained, found = list(model.parameters()), list[tuple[float, Any]]()
    for rows in units or [[row] for row in range(B)]:
        alone = [losses({name: part[row : row + 1] for name, part in given.items()}).value for row in rows]
        gradient = torch.autograd.grad(torch.stack(alone).mean(), trained)
        found.append((float(torch.cat([part.flatten() for part in gradient]).norm()), gradient))
    clip = sorted(norm for norm, _ in found)[len(found) // 2]
    total = [torch.zeros_like(parameter) for parameter in trained]
    for norm, gradient in found:
        total = [one + min(1.0, clip / norm) * part for one, part in zip(total, gradient, strict=True)]
    return clip, total


def require(sums: dict[nn.Parameter, Tensor], expected: list[Tensor]) -> None:
    for found, part in zip(sums.values(), expected, strict=True):
        torch.testing.assert_close(found, part, rtol=1e-9, atol=1e-12)


UNITS = [[0, 3], [1], [2, 4, 5]]


@pytest.mark.parametrize("units", [None, UNITS], ids=["records", "units"])
@pytest.mark.parametrize("losses", [over_items, over_records])
@pytest.mark.parametrize("even", [True, False])
def test_the_parts_of_a_mean_are_the_records(losses: Any, even: bool, units: Any) -> None:
    model = network()
    clip, expected = by_hand(model, losses(model), batch(even=even), units)
    clipper = Clipper(model, losses(model), clip)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = clipper.add(batch(even=even), units=units)
    require(clipper.take(), expected)
    assert clipper.ways == {"fast"}
    torch.testing.assert_close(told, losses(model)(batch(even=even)).value.detach().expand(B))


def test_layer_by_layer_as_they_arrive() -> None:
    model, sums = network(), []
    groups = [Group(parameters=("0.*", "1.*"), clip_norm=0.4), Group(parameters=("2.*", "3.*"), clip_norm=0.4)]
    for isolation in ("declared", "enforced"):
        clipper = Clipper(model, over_items(model), groups, isolation=isolation)
        clipper.add(batch())
        sums.append(list(clipper.take().values()))
        assert (clipper.ways == {"fast"}) == (isolation == "declared")
    torch.testing.assert_close(*sums)


def test_the_first_batch_of_uneven_records_is_looked_at() -> None:
    """Batch 3, which the schedule leaves out: until then a mean over records was one over items."""
    model = network()
    clip, expected = by_hand(model, over_records(model), batch(seed=3))
    looked = Clipper(model, over_records(model), clip)
    for seed in (1, 2):
        looked.add(batch(even=True, seed=seed))
    looked.take()
    assert looked._tried[0].items
    looked.add(batch(seed=3))
    assert not looked._tried[0].items
    require(looked.take(), expected)
    assert looked.ways == {"fast"}


def test_what_is_no_mean_is_computed_of_records_alone() -> None:
    model = network()
    clip, expected = by_hand(model, sorted_over_records(model), batch())
    clipper = Clipper(model, sorted_over_records(model), clip)
    with pytest.warns(RecordByRecordWarning, match="one number for a batch, and no mean over records"):
        clipper.add(batch())
    require(clipper.take(), expected)
    assert "fast" not in clipper.ways


def test_a_record_that_cannot_be_measured_takes_no_other_with_it() -> None:
    """The number is NaN, and so is that record's gradient alone."""
    model = network()

    def losses(given: dict[str, Tensor]) -> MeanLoss:
        each = (model(given["words"]) * given["scale"][:, None, None]).square().flatten(1).sum(1)
        return MeanLoss(each.mean(), torch.ones(len(each), dtype=torch.int64))

    given = {**batch(), "scale": torch.ones(B, dtype=torch.float64)}
    given["scale"][2] = torch.nan
    others = {name: torch.cat([part[:2], part[3:]]) for name, part in given.items()}
    sums = []
    for one in (given, others):
        clipper = Clipper(model, losses, 0.4, isolation="declared")
        clipper.add(one)
        sums.append(list(clipper.take().values()))
    torch.testing.assert_close(*sums)


def test_what_a_number_is_a_mean_of_is_looked_at_where_isolation_is_declared() -> None:
    """Else the parts of all would be scaled by how many items the others have."""
    model = network()
    clip, expected = by_hand(model, over_records(model), batch())
    clipper = Clipper(model, over_records(model), clip, isolation="declared")
    clipper.add(batch(even=True))
    clipper.take()
    clipper.add(batch())
    require(clipper.take(), expected)
    assert clipper.ways == {"fast"}
