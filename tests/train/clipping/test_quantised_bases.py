"""Adapters in float32 on frozen layers of whole numbers: exact, watched, kept and sealed like any others."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from networks import flat
from per_record import assert_clips_like_single_records, squares
from quantised import KINDS, Linear8bitLt, quantise
from torch import Tensor, nn

import lethe
from lethe.errors import HypothesisError, InputError
from lethe.train import PrivacyEngine, fit
from lethe.train.core.vouching import released_states
from lethe.train.model_state.undisturbed import undisturbed
from lethe.train.model_state.untouched_state import UntouchedState

TOKENS = torch.randint(3, 31, (12, 7), generator=torch.Generator().manual_seed(1))


def run_of(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"records": 12, "batches": lethe.Cyclic(size=4), "steps": 3, "step_size": 0.1, "clip_norm": 0.5}
    return lethe.Run(**{**fields, "noise_multiplier": 1.0, "release": "all", "neighbours": "zero_out", **changes})


class Adapter(nn.Module):
    """LoRA: a frozen layer and a product of two small ones beside it."""

    def __init__(self, base: nn.Module, width: int = 8) -> None:
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(width, 2, bias=False), nn.Linear(2, width, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        return self.base(given) + self.up(self.down(given))


def adapted(kind: str, *, called: bool = True) -> nn.Sequential:
    """Two quantised layers with adapters; bitsandbytes moves numbers at the first call, which is made on zeros."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [Adapter(KINDS[kind](nn.Linear(8, 8, bias=False))) for _ in range(2)]
        model = nn.Sequential(nn.Embedding(31, 8).requires_grad_(False), layers[0], nn.GELU(), layers[1])
    if called:
        model(torch.zeros(1, 7, dtype=torch.long))
    return model


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return squares(outputs)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_lora_of_peft_is_that_of_records_alone(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}

    class Logits(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Tensor) -> Tensor:
            return self.model(input_ids=tokens, use_cache=False).logits

    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers' own
        torch.manual_seed(0)
        base = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=31, max_position_embeddings=12, **sizes))
        quantise(base.model, KINDS[kind])
        model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"))
        for parameter in model.parameters():
            if parameter.requires_grad:  # the second factor begins at 0
                parameter.data.add_(0.1 * torch.randn(parameter.shape))
    assert {parameter.dtype for parameter in model.parameters() if parameter.requires_grad} == {torch.float32}
    clipper = assert_clips_like_single_records(Logits(model), TOKENS[:5])
    assert (clipper.verified, clipper.formed) == ("checked", "per layer")


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_leaves_the_whole_numbers_alone_and_is_sealed(kind: str, tmp_path: Path) -> None:
    """With a checkpoint in the middle, from which another model goes on."""
    model, before = adapted(kind), adapted(kind)
    optimizers = [torch.optim.AdamW(one.parameters(), lr=0.01) for one in (model, before)]  # frozen ones too
    run, data = run_of(noise_multiplier=0.0), (TOKENS, TOKENS[:, 0])
    fitted = fit(model, squared, data, run, physical_size=4, optimizer=optimizers[0], checkpoints=tmp_path / "kept")
    assert not torch.equal(flat(fitted.model[1].up), flat(before[1].up))
    assert fitted.checked == "checked"
    assert released_states({"base": model[1].base}) == released_states({"base": before[1].base}) != ()
    again = fit(before, squared, data, run, physical_size=4, optimizer=optimizers[1], checkpoints=tmp_path / "kept")
    assert torch.equal(flat(again.model[1].up), flat(fitted.model[1].up))
    assert lethe.certify(fit(adapted(kind), squared, data, run_of(), physical_size=4), 1e-3).seal is not None


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_another_base_is_another_training(kind: str, tmp_path: Path) -> None:
    run, data = run_of(), (TOKENS, TOKENS[:, 0])
    kept = {"physical_size": 4, "checkpoints": tmp_path / "kept"}
    fit(adapted(kind), squared, data, run, **kept)
    other = adapted(kind)
    one_more(other[1].base)
    with pytest.raises(InputError, match="frozen"):
        fit(other, squared, data, run, **kept)


def one_more(layer: nn.Module) -> None:
    """Changes one of the layer's whole numbers."""
    numbers: Any = getattr(layer.weight, "numbers", layer.weight)
    with torch.no_grad():
        numbers.data[0, 0] -= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_number_that_changes_is_found(kind: str) -> None:
    model = adapted(kind)
    state = UntouchedState(model, attributes=True)
    with undisturbed(model):
        model(TOKENS)
    state.refuse_changes()
    one_more(model[1].base)
    with pytest.raises(HypothesisError, match=r"1\.base.* changed while records passed through the model"):
        state.refuse_changes()


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_of_ones_own(kind: str) -> None:
    model, engine = adapted(kind), PrivacyEngine(run_of(), physical_size=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    _, _, loader = engine.make_private(module=model, optimizer=optimizer, data=(TOKENS, TOKENS[:, 0]))
    for inputs, targets in loader:
        with engine.recording():
            losses = engine.losses(squared, model(inputs), targets)
        engine.backward(losses)
        optimizer.step()
        optimizer.zero_grad()
    assert lethe.certify(engine.record(), 1e-3).seal is not None


@pytest.mark.slow
def test_numbers_that_move_at_the_first_call_must_have_moved_before() -> None:
    with pytest.raises(HypothesisError, match=r"(?s)kept something.*call the model once on zeros"):
        fit(adapted("rows rounded", called=False), squared, (TOKENS, TOKENS[:, 0]), run_of(), physical_size=4)


@pytest.mark.slow
def test_rounding_that_depends_on_the_batch_is_refused() -> None:
    """One record's large number changes how all others are rounded; the first batch need not have one, so it is told by the class."""
    layer = Linear8bitLt(nn.Linear(8, 8, bias=False), threshold=6.0)
    given = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    others = given.clone()
    others[2, 0] = 20.0
    assert not torch.equal(layer(given)[0], layer(others)[0])
    model = nn.Sequential(layer, nn.Linear(8, 3))
    adapter = type("Linear8bitLt", (Adapter,), {})(nn.Linear(8, 8))  # PEFT's has the same name
    fit(nn.Sequential(adapter, nn.Linear(8, 3)), squared, (given.repeat(4, 1), given.repeat(4, 1)), run_of(), physical_size=4)
    with pytest.raises(InputError, match=r"(?s)0 \(Linear8bitLt\) has threshold = 6.0.*llm_int8_threshold=0.0"):
        fit(model, squared, (given.repeat(4, 1), given.repeat(4, 1)), run_of(), physical_size=4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_dynamic_quantisation_of_torch_is_refused() -> None:
    quantisation = pytest.importorskip("torch.ao.quantization")
    if not hasattr(quantisation, "quantize_dynamic"):
        pytest.skip("this version of torch has none")
    base = quantisation.quantize_dynamic(nn.Sequential(nn.Linear(8, 8)), {nn.Linear}, dtype=torch.qint8)
    given = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="one scale for the whole batch"):
        fit(nn.Sequential(base, nn.Linear(8, 3)), squared, (given, given), run_of(), physical_size=4)
