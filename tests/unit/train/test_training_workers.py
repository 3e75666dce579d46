"""Workers, shared noise and wrapped models, as far as one process can show them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from networks import CLASSES, CROSS_ENTROPY
from torch import Tensor, nn

from lethe.errors import InputError, LetheError
from lethe.train.clip.clipper import Clipper
from lethe.train.distributed.workers import Workers


class Done:
    def wait(self, *timeout: Any) -> bool:
        return True


def group(monkeypatch: pytest.MonkeyPatch, others: Sequence[tuple[float, float]], backend: str = "cpu:gloo,cuda:nccl") -> None:
    """A process group that is not there, and what the others would say in it; it exchanges nothing else."""

    def all_gather(told: list[Tensor], mine: Tensor, async_op: bool) -> Done:
        for place, said in zip(told, [mine, *map(mine.new_tensor, others)], strict=True):
            place.copy_(said)
        return Done()

    answers = {"is_initialized": True, "get_rank": 0, "get_world_size": 1 + len(others), "get_backend_config": backend}
    for name, answer in answers.items():
        monkeypatch.setattr(dist, name, lambda answer=answer: answer)
    monkeypatch.setattr(dist, "all_gather", all_gather)
    for name in ("broadcast", "broadcast_object_list", "reduce"):
        monkeypatch.setattr(dist, name, lambda *_, **__: pytest.fail("exchanged"))


def test_processes_that_expect_different_things_exchange_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    group(monkeypatch, [(2.0, 0.0)])
    with pytest.raises(LetheError, match=r"different noise: its standard deviations are 1\.0 in process 0, 0\.0 in process 1"):
        Workers.current().from_root([torch.tensor([3])], 1.0)
    monkeypatch.setattr(dist, "broadcast_object_list", lambda sent, src: None)
    assert Workers.current().told_by_root("checkpoint", 3) == 3
    with pytest.raises(LetheError, match="process 0 sends its None, and process 1 expects its checkpoint"):
        Workers(rank=1, world_size=2).told_by_root("checkpoint", 3)


def test_a_process_group_for_other_devices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    group(monkeypatch, [(0.0, 0.0)], backend="cuda:nccl")
    with pytest.raises(InputError, match="exchanges tensors on cuda; the model is on cpu"):
        Workers.current().refuse_device(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    Workers.current().refuse_device(torch.device("cuda", 0))
    with pytest.raises(InputError, match="the model is on cuda:1, and the present GPU of this process is 0"):
        Workers.current().refuse_device(torch.device("cuda", 1))


class Tagger(nn.Module):
    """An embedding, attention, a recurrent layer and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.block = nn.Embedding(20, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.recurrent, self.head = nn.GRU(16, 12, batch_first=True), nn.Linear(12, CLASSES)
        self.scale = nn.Parameter(torch.ones(12))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recurrent(self.block(self.embedding(tokens)))[0].mean(1) * self.scale)


def test_layers_in_bfloat16_keep_to_the_clip_norm() -> None:
    """What a policy of precision makes of gathered parameters: sums are float64, and no record's is longer than C."""
    torch.manual_seed(0)
    model, tokens, targets = Tagger().bfloat16(), torch.randint(20, (6, 9)), torch.randint(CLASSES, (6,))
    for record in range(6):
        losses = lambda batch: CROSS_ENTROPY(100 * model(batch[0]).float(), batch[1])  # noqa: E731
        clipper = Clipper(model, losses, clip_norm=1e-3, isolation="declared")
        clipper.add((tokens, targets), counted=torch.arange(6) == record)
        sums = clipper.take().values()
        assert all(total.dtype == torch.float64 for total in sums)
        assert 0.99e-3 < float(torch.cat([total.double().reshape(-1) for total in sums]).norm()) <= 1e-3
