"""Adapters of peft on bases in float32, bfloat16, 8 bits and 4: what is trained is what moves, what is saved is what was trained.

Opacus reported epsilon for weights of peft that had not moved (its issue 820, from peft 0.14 on). `make old-peft` runs this on that one.
"""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from zoo_text import CONFIGS

import lethe
from lethe.errors import InputError, LetheWarning, RecordByRecordWarning, UnusedParameterWarning
from lethe.train import Checkpoints, PrivacyEngine, TrainOptions, fit
from lethe.train.clip.clipper import Clipper

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

RECORDS, LENGTH, WORDS, STEPS = 12, 6, 31, 4
BASES = ("float32", "bfloat16", "8-bit", "4-bit")
RUN = lethe.Run(
    records=RECORDS,
    batches=lethe.batches.Shuffled(RECORDS // 2),
    steps=STEPS,
    step_size=0.1,
    clip_norm=1.0,
    noise_multiplier=1.0,
    release="all",
    neighbours="replace_one",
)
HEAD = {"LoRA and a head": ("LoraConfig", {**CONFIGS["LoRA"][1], "modules_to_save": ["lm_head"]})}
KINDS = CONFIGS | HEAD
RANKS = {("AdaLoRA", "bfloat16")}  # there peft trains the rank, a number that it does not save
OLD = {("DoRA", "bfloat16"), ("BOFT", "bfloat16")} if peft.__version__.startswith("0.14") else set()  # it cannot use what it merged there
WRONG = {("HRA", "8-bit")}  # there peft multiplies with the whole numbers that stand for the weights
PROMPTS = ("prefix tuning", "prefix tuning, projected", "prompt tuning", "P-tuning")
ALLOWED = {"float32": 1e-5, "bfloat16": 2e-2, "8-bit": 1e-5, "4-bit": 1e-5}  # of the scores; what is saved is the same to the bit


class Killed(BaseException):
    """The process ended."""


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """What transformers, peft and bitsandbytes say is theirs; what Lethe says is an error."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", LetheWarning)
        warnings.simplefilter("ignore", RecordByRecordWarning)
        yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with random weights, as one downloads it."""
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "max_position_embeddings": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    folder = tmp_path_factory.mktemp("base")
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, use_cache=False)).save_pretrained(folder)
    return folder


def loaded(saved: Path, base: str) -> Any:
    if base.endswith("bit"):
        pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: no base in 8 or 4 bits")
        four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        told = four if base == "4-bit" else {"load_in_8bit": True, "llm_int8_threshold": 0.0}
        given = {"quantization_config": transformers.BitsAndBytesConfig(**told), "device_map": "cpu"}
    else:
        given = {"dtype": getattr(torch, base)}
    return transformers.AutoModelForCausalLM.from_pretrained(saved, **given)


def adapted(saved: Path, kind: str, base: str) -> Any:
    """The model, in training mode; skipped where peft itself does not train it."""
    if (kind, base) in WRONG:
        pytest.skip(f"peft {peft.__version__} does not know {base} bases in {kind}")
    name, options = KINDS[kind]
    torch.manual_seed(1)
    model = loaded(saved, base)
    try:
        model = peft.get_peft_model(model, getattr(peft, name)(task_type="CAUSAL_LM", **options)).train()
        for _ in range(2):
            model(input_ids=tokens()).logits.float().sum().backward()
    except Exception as error:
        pytest.skip(f"peft {peft.__version__} alone fails: {type(error).__name__}: {error}")
    model.zero_grad()
    if (kind, base) in RANKS:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and "ranknum" not in name)
    return model


def tokens() -> Tensor:
    return torch.randint(WORDS, (RECORDS, LENGTH), generator=torch.Generator().manual_seed(2))


def data() -> dict[str, Tensor]:
    return {"input_ids": tokens(), "labels": tokens()}


def next_words(outputs: Any, batch: dict[str, Tensor]) -> Tensor:
    scores = outputs.logits[:, -LENGTH:-1].float()  # prompts stand before
    return nn.functional.cross_entropy(scores.transpose(1, 2), batch["labels"][:, 1:], reduction="none").mean(1)


def trained_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters() if parameter.requires_grad}


def frozen_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters() if not parameter.requires_grad}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@torch.no_grad()
def scores(model: Any) -> Tensor:
    return model(input_ids=tokens()).logits.float()


def trained(model: Any, folder: Path | None = None, kill_at: int | None = None, seen: list[Any] | None = None) -> Any:
    """Train; killed in a step, after that before was kept. `seen` is given the parameters that its first and its last step began with."""
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.05)
    steps = []

    def step(*_: Any) -> None:
        steps.append(trained_of(model))
        if len(steps) == kill_at:
            raise Killed

    optimizer.register_step_pre_hook(step)
    kept = None if folder is None else Checkpoints(folder=folder, every=1)
    try:
        return fit(model, next_words, data(), RUN, optimizer=optimizer, options=TrainOptions(checkpoints=kept))
    finally:
        if seen is not None:
            seen += [steps[0], steps[-1]]


@pytest.mark.sampled(50)
@pytest.mark.parametrize("state", ["fresh", "resumed", "merged"])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_trained_moves_and_is_what_is_saved(tmp_path: Path, saved: Path, kind: str, base: str, state: str) -> None:
    model = adapted(saved, kind, base)
    before, frozen = trained_of(model), frozen_of(model)
    if {tensor.dtype for tensor in before.values()} != {torch.float32}:
        with pytest.raises(InputError, match="it needs float32 or float64"):
            trained(model)
        return
    if state == "resumed":
        killed, resumed = [], []
        with pytest.raises(Killed):
            trained(model, tmp_path / "kept", kill_at=3, seen=killed)
        model = adapted(saved, kind, base)
        fitted = trained(model, tmp_path / "kept", seen=resumed)
        assert fitted.run.steps == STEPS
        assert same(killed[-1], resumed[0])
    else:
        fitted = trained(model)
    after = trained_of(model)
    assert all(bool((after[name] != before[name]).any()) for name in before)
    assert before.keys() == after.keys()
    assert same(frozen_of(model), frozen)
    told = scores(model)
    model.save_pretrained(tmp_path / "adapter")
    again = loaded(saved, base)
    if state == "merged" and base.endswith("bit"):  # merged into few bits it would be rounded to them
        again = again.dequantize()
        again.is_loaded_in_8bit = again.is_loaded_in_4bit = False
    again = peft.PeftModel.from_pretrained(again.train(), tmp_path / "adapter").train()
    if state == "merged" and kind not in PROMPTS and (kind, base) not in OLD:  # which are no part of a weight
        again = again.merge_and_unload()
    assert (scores(again) - told).norm() <= ALLOWED[base] * told.norm()
    lethe.certify(fitted, delta=1e-5).save(tmp_path / "certificate.json")
    assert lethe.verify(tmp_path / "certificate.json", weights=tmp_path / "adapter" / "adapter_model.safetensors").yes


@pytest.mark.sampled(8)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", ["LoRA", "DoRA", "IA3", "prompt tuning"])
def test_sums_are_those_of_single_records(saved: Path, kind: str, base: str) -> None:
    model = adapted(saved, kind, base)
    with torch.no_grad():
        for parameter in trained_of(model):
            dict(model.named_parameters())[parameter].add_(0.1 * torch.randn(dict(model.named_parameters())[parameter].shape))
    own = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def losses(batch: dict[str, Tensor]) -> Tensor:
        return next_words(model(input_ids=batch["input_ids"]), batch)

    gradients = []
    for record in range(RECORDS):
        row = {name: rows[record : record + 1] for name, rows in data().items()}
        gradients.append(torch.cat([part.flatten() for part in torch.autograd.grad(losses(row).sum(), own)]).double())
    norm = float(torch.stack(gradients).norm(dim=1).median())  # half of the records are clipped
    expected = sum(gradient * min(1.0, norm / float(gradient.norm())) for gradient in gradients)
    clipper = Clipper(model, losses, norm)
    for _ in range(3):  # the last one without the check
        clipper.add(data())
        sums = clipper.take()
        error = torch.cat([sums[parameter].flatten() for parameter in own]) - expected
        assert float(error.norm()) <= ALLOWED[base] * norm * RECORDS


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unused", ["merged", "disabled", "another"])
def test_adapters_that_are_not_used_are_refused_or_told_of_in_step_one(saved: Path, unused: str) -> None:
    """The weights would be noised and paid for; what the model computes has nothing of them."""
    model = adapted(saved, "LoRA", "float32")
    if unused == "merged":
        model.merge_adapter()
    elif unused == "disabled":
        for layer in model.modules():
            if hasattr(layer, "enable_adapters") and hasattr(layer, "_disable_adapters"):
                layer._disable_adapters = True  # the parameters still require grad
    if unused != "another":
        with pytest.raises(InputError, match="depend on no trained parameter"):
            trained(model)
        return
    model.add_adapter("second", peft.LoraConfig(task_type="CAUSAL_LM", **CONFIGS["LoRA"][1]))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)  # of both, and the first is active
    with pytest.warns(UnusedParameterWarning, match=r"lora_A.second.*\(and 7 more of 16\).*no record's loss depends on it"):
        trained(model)


def test_what_peft_would_not_save_is_told_of_in_step_one(saved: Path) -> None:
    model = adapted(saved, "LoRA", "float32")
    model.base_model.model.lm_head.weight.requires_grad_()
    with pytest.warns(UnusedParameterWarning, match=r"lm_head.weight gets noise.*save_pretrained\(\) leaves it out"):
        trained(model)
    model = adapted(saved, "AdaLoRA", "bfloat16")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad or "ranknum" in name)
    with pytest.warns(UnusedParameterWarning, match=r"ranknum.*\(and 3 more of 16\).*save_pretrained"):
        trained(model)


def test_gradients_come_through_four_bits_after_an_evaluation(saved: Path, tmp_path: Path) -> None:
    """On some CPUs bitsandbytes packs 4-bit weights in an evaluation, and then computes no gradient."""
    model = adapted(saved, "LoRA", "4-bit")
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1.0)

    def losses(batch: dict[str, Tensor]) -> Tensor:
        return next_words(model(input_ids=batch["input_ids"]), batch)

    run = RUN.replace(noise_multiplier=0.0)
    kept = TrainOptions(checkpoints=Checkpoints(folder=tmp_path, every=1))
    engine = PrivacyEngine(model, optimizer, losses, data(), run, options=kept)
    for batch in engine.batches():
        before = trained_of(model)
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
        moved = [name for name, tensor in trained_of(model).items() if not torch.equal(tensor, before[name])]
        assert {name for name in before if "lora_B" in name} <= set(moved)
        with torch.no_grad():
            model.eval()(input_ids=tokens())
        model.train()
