"""Records that meet in a loss or in the padding of their batch are refused, in loops and in fit; the rest is declared; worker processes."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import Listed, by_step, numbered, oracle, seeded
from data_cases import make_run as data_run
from doors import arguments, fit_head
from helpers import make_run
from networks import CLASSES, CROSS_ENTROPY, Loop, fit_network, losses_of, make_data, make_network, make_network_run
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

import lethe
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.run.run import Run
from lethe.train import Fitted, fit
from lethe.train.core.training_records import LOOP
from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.map_style import MapStyleSource
from lethe.train.data.sources import TensorSource, fetched

RUN = make_network_run("cyclic", noise_multiplier=1.0)


class WithTheLast(nn.Module):
    """Pulls every record towards the last batch's mean, in a buffer or an attribute; or in the gradient alone: losses do not change."""

    def __init__(self, *, gradients_alone: bool = False, buffer: bool = False) -> None:
        super().__init__()
        self.gradients_alone = gradients_alone
        if buffer:
            self.register_buffer("last", torch.zeros(CLASSES, dtype=torch.float64))
        else:
            self.last = torch.zeros(CLASSES, dtype=torch.float64)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        pulled = (outputs - outputs.detach()) * self.last if self.gradients_alone else outputs * self.last
        losses, self.last = CROSS_ENTROPY(outputs, targets) + pulled.sum(1), outputs.detach().mean(0)
        return losses


MIXING: dict[str, Callable[[], Any]] = {
    "a count of the batch": lambda: lambda outputs, targets: CROSS_ENTROPY(outputs, targets) / (1 + (targets == 0).sum()),
    "the last batch": WithTheLast,
    "the last batch, in gradients alone": lambda: WithTheLast(gradients_alone=True),
    "the last batch, in a buffer": lambda: WithTheLast(buffer=True),
}


@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
@pytest.mark.parametrize("name", MIXING)
def test_a_loss_by_which_records_meet_is_refused(name: str) -> None:
    with pytest.raises(LetheError, match=r"depends on the other records|keeps what it saw|modified by an inplace"):
        Loop(RUN, losses=losses_of(model := make_network(), MIXING[name]()), model=model).whole()


def test_constants_and_what_is_a_record_s_own_are_left_alone() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def honest(outputs: Tensor, targets: Tensor) -> Tensor:
        tokens = (targets >= 0).double()
        each = functional.cross_entropy(outputs, targets, weight=weights, reduction="none", label_smoothing=0.1) * tokens * 0.5
        return each / tokens.clamp(min=1) + 0.1 * outputs.square().mean(1) / torch.tensor(3.0)

    model = make_network()  # the last term has a weight that follows a plan
    loop = Loop(
        RUN, model=model, losses=lambda batch: losses_of(model, honest)(batch) + loop.engine.steps * model(batch[0]).square().mean(1)
    )
    assert loop.whole().replace(seeded=False) == RUN


class Tagger(nn.Module):
    """A label for every word of a padded sentence."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 9)
        self.double()

    def forward(self, words: Tensor) -> Tensor:
        return self.head(torch.tanh(self.words(words)))


def sentences(full: int = 0) -> tuple[Tensor, Tensor]:
    """Words 1..8, padded with 0, and labels, padded with -100; the first records may be full."""
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(1, 9, (24, 7), generator=generator)
    lengths = torch.randint(2, 7, (24,), generator=generator)
    lengths[:full] = 7
    words = words * (torch.arange(7) < lengths[:, None])
    return words, torch.where(words == 0, -100, words)


def of_tokens(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.transpose(1, 2), labels, reduction="none").sum(1)


TOKENS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "all": lambda outputs, labels: of_tokens(outputs, labels) / (labels != -100).sum(),
    "shifted": lambda outputs, labels: of_tokens(outputs[:, :-1], labels[:, 1:]) / (labels[:, 1:] != -100).sum(),
    "the mean": lambda outputs, labels: of_tokens(outputs, labels) / ((labels != -100).sum() / len(labels)),
    "own": lambda outputs, labels: of_tokens(outputs, labels) / (labels != -100).sum(1),
}


@pytest.mark.parametrize("full", [0, 6])
@pytest.mark.parametrize("name", TOKENS)
def test_losses_over_the_tokens_of_their_batch_are_refused_and_those_over_a_record_s_own_pass(name: str, full: int) -> None:
    model = Tagger()
    run = RUN.replace(records=24, batches=lethe.batches.Cyclic(6), steps=4)
    loop = Loop(run, model=model, losses=losses_of(model, TOKENS[name]), data=sentences(full))
    if name == "own":
        loop.whole()
        return
    with pytest.raises(LetheError, match="the loss of record"):
        loop.whole()
    assert loop.engine.steps <= 1  # of the mean over batches of full records the first says nothing


def test_what_is_not_seen_is_declared() -> None:
    class Rows(TensorSource):
        declared = ("these rows are apart",)

    class Unknown(TensorSource):
        pass

    loop, done = Loop(RUN), fit_network(RUN, data=Rows(*make_data())).declared
    loop.use(next(iter(loop.loader)))
    assert LOOP.detail in lethe.certify(loop.engine.record(), 1e-3).explain()  # what a loop mixes before backward
    assert "these rows are apart" in done
    assert not any(LOOP.detail == statement or ".fetch" in statement for statement in done)
    assert any("Unknown.fetch" in statement for statement in fit_network(RUN, data=Unknown(*make_data())).declared)


def test_training_to_which_nothing_contributed_says_so_and_not_how_many_did() -> None:
    features, targets = make_data()
    with pytest.warns(UserWarning, match="private: no record contributed to any step"):
        done = fit_network(RUN, data=(torch.full_like(features, torch.nan), targets))
    assert done.diagnostics.contributed is False
    nan = features.clone()
    nan[1:] = torch.nan
    assert fit_network(RUN, data=(nan, targets)).diagnostics.contributed is True
    masked = torch.full_like(targets, -100)  # PyTorch's label of what does not count: the loss is 0
    with pytest.warns(UserWarning, match="private: no record contributed to any step .* every gradient was 0.* all masked") as said:
        assert fit_network(RUN, data=(features, masked)).diagnostics.contributed is False
    assert not any(str(len(masked)) in str(one.message) for one in said)
    loop = Loop(RUN)
    assert loop.engine.diagnostics is None
    loop.whole()
    assert getattr(loop.engine.diagnostics, "contributed", None) is True


RECORDS, WORDS = 24, 7


class Sentences:
    """Words 1..6, up to 9 of them, and a class."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        random = np.random.default_rng(index)
        return torch.from_numpy(random.integers(1, WORDS, size=1 + 2 * (index % 5))), torch.tensor(index % 3)


def collated(records: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return pad_sequence([words for words, _ in records], batch_first=True), torch.stack([kind for _, kind in records])


class Mean(nn.Module):
    """The mean of the words' vectors, of the padding's too unless it is masked; the head begins at 0, and outputs say nothing."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        self.table, self.head, self.masked = nn.Embedding(WORDS, 5), nn.Linear(5, 3), masked
        nn.init.zeros_(self.head.weight)

    def forward(self, words: Tensor) -> Tensor:
        mask = ((words != 0) | (not self.masked)).unsqueeze(2)
        return self.head((self.table(words) * mask).sum(1) / mask.sum(1))


def run(**changes: Any) -> lethe.Run:
    steps = {"passes": 1, "step_size": 0.1, "clip_norm": 1.0, "noise_multiplier": 1.0, "release": "all", "loss": {"kind": "unknown"}}
    return make_run(**{"records": RECORDS, "batches": lethe.batches.Cyclic(8), **steps, **changes})


def fit_padded(model: nn.Module, loss: Callable[[Any, Any], Tensor], **options: Any) -> Fitted[nn.Module]:
    return fit(model, loss, MapStyleSource(Sentences(), collate=collated), run(), **arguments(options))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [None, 4])
def test_fit_refuses_a_mean_over_the_padding(physical_size: int | None) -> None:
    with pytest.raises(InputError, match="padded"):
        fit_padded(Mean(masked=False), CROSS_ENTROPY, physical_size=physical_size)
    with pytest.raises(InputError, match="padded"):  # by a loss that counts it
        fit_padded(Tagger(), lambda outputs, kinds: of_tokens(outputs, kinds[:, None].expand(outputs.shape[:2])) / outputs.shape[1])
    with pytest.raises(InputError, match="padded"):  # in batches that worker processes read
        fit(Mean(masked=False), CROSS_ENTROPY, MapStyleSource(Sentences(), collate=collated, num_workers=1), run())
    assert fit_padded(Mean(masked=True), CROSS_ENTROPY, physical_size=physical_size).diagnostics.gradients is not None


def test_so_it_is_of_the_features_of_a_backbone() -> None:
    def head_on(collate: Any, *, masked: bool = True) -> Fitted[nn.Sequential]:
        loss = lethe.losses.Softmax(feature_norm=1.0, intercept=True, evidence="enforced")
        told = run(batches=lethe.batches.Cyclic(4), clip_norm=None, loss=loss, release="last")
        backbone = Mean(masked=masked).requires_grad_(False)
        backbone.head = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
        return fit_head(backbone, nn.Linear(5, 3), MapStyleSource(Sentences(), collate=collate), told, physical_size=6)

    def centred(records: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        words, kinds = collated(records)
        return words - words.float().mean(0).long(), kinds

    assert "record i of Sentences is made of record i alone" in " ".join(head_on(collated).declared)
    with pytest.raises(InputError, match="of more than that record"):
        head_on(centred)
    with pytest.raises(HypothesisError, match="depend on how far its batch is padded"):
        head_on(collated, masked=False)


def stream(run: Run, seed: int = 0, data: Any = None, **changes: Any) -> BatchStream:
    return BatchStream(run, numbered(run.records) if data is None else data, seeded(seed), **changes)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_source_comes_in_its_place_and_the_rest_can_follow(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.sources._SAMPLES", 8)  # record 8 is none of them
    before = set(multiprocessing.active_children())
    run, dataset, got = data_run("cyclic", records=12, size=3, passes=1), Listed(12, fails_at=8), list[LoadedBatch]()
    batches = stream(run, data=MapStyleSource(dataset, num_workers=workers))
    with pytest.raises(OSError, match="record 8 cannot be read"):
        got.extend(batches)
    assert batches.steps_done == 2
    dataset.fails_at = None
    for batch in batches:
        got.append(batch)
        break
    batches.close()
    assert set(multiprocessing.active_children()) <= before
    got.extend(batches)
    assert by_step(got) == dict(enumerate(oracle(run), start=1))


class Dropping(Listed):
    """Reads several records at once, and leaves out those it does not like."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices if index != 4]


def test_a_data_set_that_drops_records_is_refused_in_worker_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.sources._SAMPLES", 8)  # of 10 records
    source = MapStyleSource(Dropping(10), num_workers=1)
    for rows in (slice(3, 6), slice(4, 5)):
        with pytest.raises(InputError, match=r"3 rows, one for each record|of 0 records it makes no batch"):
            fetched(source, rows)
    with pytest.raises(InputError, match="5 rows, one for each record"):
        list(BatchStream(data_run("cyclic", 10, 5, passes=1), source))
