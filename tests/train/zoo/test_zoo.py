"""The zoo: every architecture trains exactly, or is refused with its reason; docs/architectures.md and docs/train.md say which."""

import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from repository import ROOT
from torch import Tensor, nn
from zoo_member import Batch, Member
from zoo_own import OWN
from zoo_page import GROUPS, WAYS, ZOO, summary
from zoo_pictures import PICTURES
from zoo_text import ADAPTERS, TEXT

from lethe.errors import LetheError
from lethe.train.clip.clipper import Clipper

TOLERANCE = 1e-9  # relative to the sum of the clipped norms; 1 % is ten million times as much
DOCS = ROOT / "docs"
# What people ask for by name.
NAMED = (
    "GPT-2|OPT|DeBERTa|XLNet|Longformer|Swin|Mamba|BEiT|MVit|Mixtral|IA3|AdaLoRA|VeRA|LoHa|BERT|RoBERTa|DistilBERT|ALBERT|"
    "Llama|Mistral|Qwen|Gemma|Phi|NeoX|Bloom|T5|BART|Whisper|ViT|ConvNeXt|LoRA|DoRA|prefix|prompt|experts|siamese"
)


class Outcome(NamedTuple):
    """How an architecture was trained, and by how much the sums of its clipped gradients were off."""

    how: str
    error: float = 0.0
    reason: str = ""


def outcome(member: Member, device: str = "cpu") -> Outcome:
    torch.manual_seed(0)
    model, batch = member.build().to(device), {name: tensor.to(device) for name, tensor in member.batch().items()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    records = len(batch["targets"])
    truth = torch.zeros(records, 1, device=device)
    if member.how != "refused":
        truth = torch.stack([alone(member, model, batch, record, trained) for record in range(records)])
    norms = truth.norm(dim=1)
    clip_norm = float(norms.median()) or 1.0  # half of the records are clipped
    expected = (truth * (clip_norm / norms).clamp(max=1)[:, None]).sum(0)
    try:
        clipper = Clipper(model, lambda rows: member.asked(model, rows), clip_norm)
        errors = []
        for _ in range(3):  # the last one without the check
            clipper.add(batch)
            sums = clipper.take()
            error = torch.cat([sums[parameter].flatten() for parameter in trained]) - expected
            errors.append(float(error.norm() / norms.clamp(max=clip_norm).sum()))
    except LetheError as error:
        return Outcome("refused", reason=str(error))
    (how,) = clipper.ways
    return Outcome(how, max(errors))


def alone(member: Member, model: nn.Module, batch: Batch, record: int, trained: list[nn.Parameter]) -> Tensor:
    """The gradient of a record that passes through the model by itself."""
    losses = member.asked(model, {name: tensor[record : record + 1] for name, tensor in batch.items()})
    told: Any = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if gradient is None else gradient).flatten() for p, gradient in zip(trained, told, strict=True)])


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    """Float64, and silence: what transformers and peft warn of is theirs."""
    torch.set_default_dtype(torch.float64)
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)
    torch.set_default_dtype(torch.float32)


def require(name: str) -> None:
    """On a GPU too, where there is one."""
    member = ZOO[name]
    for package in () if name in OWN else ("transformers", "peft"):
        pytest.importorskip(package)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        told = outcome(member, device)
        assert told.how == member.how, told.reason
        assert told.error <= TOLERANCE
        assert re.search(member.refusal, told.reason)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", OWN)
def test_plain_architectures(name: str) -> None:
    require(name)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", [*TEXT, *PICTURES, *ADAPTERS])
def test_architectures_of_transformers_and_peft(name: str) -> None:
    require(name)


def test_the_pages_show_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(ZOO) >= 60
    assert {member.how for member in ZOO.values()} == set(WAYS)
    assert all(any(re.search(rf"\b{name}\b", member, re.IGNORECASE) for member in ZOO) for name in NAMED.split("|"))
    assert sum(len(members) for members in GROUPS.values()) == len(ZOO)
    assert all(member.why and (member.refusal or member.how != "refused") for member in ZOO.values() if member.how != "fast")
    assert summary().strip(".\n") in (DOCS / "train.md").read_text()
    (block,) = re.findall(r'```python exec="on"\n(.*?)```', (DOCS / "architectures.md").read_text(), flags=re.S)
    exec(compile(block, "architectures.md", "exec"), {})
    shown = capsys.readouterr().out
    for name, member in ZOO.items():
        assert re.search(rf"^\| [^|]+ \| {member.how} \| .*{re.escape(name)}", shown, flags=re.M), name
