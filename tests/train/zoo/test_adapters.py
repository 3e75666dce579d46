"""Adapters of peft on bases in float32, bfloat16, 8 bits and 4: what is trained is what moves, what is saved is what was trained.

Opacus reported epsilon for weights of peft that had not moved (its issue 820, from peft 0.14 on). `make old-peft` runs this on that one.
"""

import logging
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from networks import make_network_run
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
RUN = make_network_run(records=RECORDS, batches=lethe.batches.Shuffled(6), steps=STEPS, noise_multiplier=1.0, neighbours="replace_one")
KINDS = CONFIGS | {"LoRA and a head": ("LoraConfig", {**CONFIGS["LoRA"][1], "modules_to_save": ["lm_head"]})}
RANKS = {("AdaLoRA", "bfloat16")}  # there peft trains the rank, a number that it does not save
OLD = {("DoRA", "bfloat16"), ("BOFT", "bfloat16")} if peft.__version__.startswith("0.14") else set()  # it cannot use what it merged there
FAILS = {("DoRA", "8-bit"), ("LoHa", "4-bit"), ("LoKr", "4-bit"), ("HRA", "4-bit")}  # of peft alone, on a CPU
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
    """The model, in training mode, that nobody has called; skipped where peft itself does not train it."""
    if (kind, base) in WRONG:
        pytest.skip(f"peft {peft.__version__} does not know {base} bases in {kind}")
    if said := failure(saved, kind, base):
        assert (kind, base) in FAILS or peft.__version__.startswith("0.14"), said
        pytest.skip(f"peft {peft.__version__} alone fails: {said}")
    return made(saved, kind, base)


def made(saved: Path, kind: str, base: str) -> Any:
    name, options = KINDS[kind]
    torch.manual_seed(1)
    model = peft.get_peft_model(loaded(saved, base), getattr(peft, name)(task_type="CAUSAL_LM", **options)).train()
    if (kind, base) in RANKS:
        for called, parameter in model.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and "ranknum" not in called)
    return model


@cache
def failure(saved: Path, kind: str, base: str) -> str:
    """What peft fails with in two plain steps; empty: it does not."""
    try:
        model = made(saved, kind, base)
        for _ in range(2):
            model(input_ids=tokens()).logits.float().sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def tokens() -> Tensor:
    return torch.randint(WORDS, (RECORDS, LENGTH), generator=torch.Generator().manual_seed(2))


def data() -> dict[str, Tensor]:
    return {"input_ids": tokens(), "labels": tokens()}


def next_words(outputs: Any, batch: dict[str, Tensor]) -> Tensor:
    scores = outputs.logits[:, -LENGTH:-1].float()  # prompts stand before
    return nn.functional.cross_entropy(scores.transpose(1, 2), batch["labels"][:, 1:], reduction="none").mean(1)


def trained_of(model: nn.Module, trained: bool = True) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters() if parameter.requires_grad is trained}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def losses_of(model: Any) -> Any:
    return lambda batch: next_words(model(input_ids=batch["input_ids"]), batch)


def belongs(certificate: lethe.Certificate, folder: Path) -> bool:
    certificate.save(folder / "certificate.json")
    return lethe.verify(folder / "certificate.json", weights=folder / "adapter_model.safetensors").yes


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
    before, frozen = trained_of(model), trained_of(model, False)
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
    assert same(trained_of(model, False), frozen)
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
    assert belongs(lethe.certify(fitted, delta=1e-5), tmp_path / "adapter")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", ["LoRA", "DoRA", "IA3", "prompt tuning"])
def test_sums_are_those_of_single_records(saved: Path, kind: str, base: str) -> None:
    model = adapted(saved, kind, base)
    own, losses, gradients = [parameter for parameter in model.parameters() if parameter.requires_grad], losses_of(model), []
    for parameter in own:
        parameter.data.add_(0.1 * torch.randn(parameter.shape))
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
    kept, run = TrainOptions(checkpoints=Checkpoints(folder=tmp_path, every=1)), RUN.replace(noise_multiplier=0.0)
    engine = PrivacyEngine(model, optimizer, losses_of(model), data(), run, options=kept)
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("base", BASES)
def test_a_private_trainer_saves_what_it_trained(tmp_path: Path, saved: Path, base: str) -> None:
    """By the Trainer of transformers, with an evaluation after each epoch."""
    from lethe.integrations.transformers import privatize

    model = adapted(saved, "LoRA", base)
    rows = [{"input_ids": row.tolist(), "labels": row.tolist()} for row in tokens()]
    told = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "learning_rate": 0.05, "eval_strategy": "epoch", "report_to": "none"}
    args = transformers.TrainingArguments(str(tmp_path / "out"), **told)
    public = [{name: field[::-1] for name, field in row.items()} for row in rows]
    made = transformers.Trainer(model=model, args=args, train_dataset=rows, eval_dataset=public)
    trainer = privatize(made, epsilon=8.0, delta=1e-3)
    before, frozen = trained_of(model), trained_of(model, False)
    trainer.train()
    after, told = trained_of(model), scores(model.train())
    assert all(bool((after[name] != before[name]).any()) for name in before)
    packed = base == "4-bit"  # by an evaluation, which rounds the scales of the base to bfloat16
    assert packed or same(trained_of(model, False), frozen)
    trainer.save_model(str(tmp_path / "saved"))
    again = peft.PeftModel.from_pretrained(loaded(saved, base), tmp_path / "saved").train()
    assert (scores(again) - told).norm() <= (5e-3 if packed else ALLOWED[base]) * told.norm()
    assert belongs(trainer.certificate_, tmp_path / "saved")
