"""What fit refuses, and that nothing is trained then."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from doors import arguments
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from torch import nn

from lethe.errors import HypothesisError, InputError, LetheError
from lethe.train import Group, PrivacyEngine, fit
from lethe.train.clip.clipper import Clipper
from lethe.train.network.steps import NoisySums


def batches(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Remembers(nn.Module):
    """Keeps a mean of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, dtype=torch.float64))
        self.layer = nn.Linear(4, 3).double()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + rows.detach().mean(0)
        return self.layer(rows)


def test_a_model_that_remembers_is_refused_before_its_first_step() -> None:
    model = Remembers()
    before = model.layer.weight.detach().clone()
    with pytest.raises(HypothesisError, match="writes seen"):
        fit(model, CROSS_ENTROPY, make_data(), make_network_run("full", noise_multiplier=1.0))
    assert torch.equal(model.layer.weight, before)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_made_in_inference_mode_is_refused(frozen: bool) -> None:
    model = make_network()
    with torch.inference_mode():
        model[0] = nn.Linear(4, 5).double()
    if frozen:
        model[0].requires_grad_(False)
    for train in (
        lambda: fit(model, CROSS_ENTROPY, make_data(), make_network_run("full", noise_multiplier=1.0)),
        lambda: Clipper(model, lambda batch: model(batch).sum(1)),
    ):
        with pytest.raises(InputError, match=r"parameter 0\.weight was made in inference mode"):
            train()


@pytest.mark.slow
def test_one_of_several_processes_that_has_not_joined_the_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_network_run("full", noise_multiplier=1.0, steps=1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = make_network()
    own = SGD(model.parameters(), lr=0.5)
    for train in (lambda: fit(model, CROSS_ENTROPY, make_data(), run), lambda: PrivacyEngine(model, own, len, make_data(), run)):
        with pytest.raises(InputError, match="one of 2 processes, and no process group is initialised"):
            train()
    for alone in ("1", "0", "", "many"):
        monkeypatch.setenv("WORLD_SIZE", alone)
        fit(make_network(), CROSS_ENTROPY, make_data(), run)


@pytest.mark.slow
def test_stale_gradients_of_frozen_parameters_are_not_stepped_on() -> None:
    model = make_network()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[0].weight.requires_grad_(False)
    before = model[0].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    fit(model, CROSS_ENTROPY, make_data(), make_network_run(noise_multiplier=1.0), optimizer=optimizer)
    assert torch.equal(model[0].weight, before)


@pytest.mark.slow
def test_noise_that_drowns_and_parameters_that_overflow_are_refused() -> None:
    data = make_data(torch.float32)
    faint = make_network_run(noise_multiplier=1e-14)
    with pytest.raises(LetheError, match="drowns"):  # in the sums, which are float64
        fit(make_network(torch.float32), CROSS_ENTROPY, data, faint)
    fit(make_network(torch.float32), CROSS_ENTROPY, data, faint.replace(noise_multiplier=1e-5))
    with pytest.raises(LetheError, match="overflowed"):
        fit(make_network(torch.float32), CROSS_ENTROPY, data, make_network_run(step_size=1e38, noise_multiplier=100.0, steps=3))


@pytest.mark.parametrize("fresh", [None, 0.5])
def test_noise_drowns_by_the_largest_batch_and_by_what_is_drawn_anew(fresh: float | None) -> None:
    """A Poisson batch of 5 may have all 23 records; of correlated noise a share is drawn anew."""
    correlated = None if fresh is None else SimpleNamespace(fresh_share=fresh)
    noise: Any = SimpleNamespace(correlated=correlated, secure=False, add_to=lambda tensors, noise_std: None)
    least = 1024 * torch.finfo(torch.float64).eps * 23 / (1.0 if fresh is None else fresh)
    with pytest.raises(LetheError, match="drowns"):
        NoisySums(make_network_run(noise_multiplier=0.99 * least), noise)(1, [torch.zeros(2).double()])
    NoisySums(make_network_run(noise_multiplier=1.01 * least), noise)(1, [torch.zeros(2).double()])


def mean_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return CROSS_ENTROPY(outputs, targets).mean()


SGD = torch.optim.SGD
FIXED = {"batches": {"design": "cyclic", "size": 5}}  # no first batch is empty
BOUNDED = {"kind": "smooth", "smoothness": 1.0, "gradient_bound": 0.1}
REFUSED: tuple[tuple[str, dict[str, Any], dict[str, Any], type[LetheError], str], ...] = (
    ("no run", {}, {"run": "poisson"}, InputError, "needs a lethe.Run"),
    ("no noise", {"noise_multiplier": None}, {}, InputError, "no noise yet"),
    ("no clip norm", {"clip_norm": None, "loss": BOUNDED}, {}, InputError, "clip_norm: null"),
    ("mean loss", {}, {"loss": mean_loss}, InputError, "one loss a record"),
    ("no loss", {}, {"loss": "cross_entropy"}, InputError, "loss: got str"),
    ("a class of losses", {}, {"loss": nn.CrossEntropyLoss}, InputError, "(?s)loss: got the class.*reduction="),
    ("labels beyond", FIXED, {"data": (make_data()[0], make_data()[1] + 5)}, InputError, "(?s)outputs.*out of bounds.*whole numbers"),
    ("labels, no numbers", FIXED, {"data": (make_data()[0], make_data()[1].double())}, InputError, "(?s)targets, float64.*whole numbers"),
    ("too few columns", FIXED, {"data": (make_data()[0][:, :3], make_data()[1])}, InputError, "(?s)shape .*, 3.*does not go into"),
    ("no model", {}, {"model": "cnn"}, InputError, "model: got str"),
    ("method", {}, {"method": "clamp"}, InputError, "method: got"),
    ("records", {"records": 24}, {}, InputError, "records: the run says 24"),
    ("one tensor", {}, {"data": make_data()[0]}, InputError, "one tensor"),
    ("float32 data", {}, {"data": make_data(torch.float32)}, InputError, "float32 does not go into this model"),
    ("physical size", {}, {"physical_size": 0}, InputError, "physical_size"),
    ("progress", {}, {"progress": 3}, InputError, "progress"),
    ("seed and generator", {}, {"seed": 1, "batch_generator": batches(0)}, InputError, "seed: given together"),
    ("seed and secure", {}, {"seed": 1, "secure": True}, InputError, "seed: given together"),
    ("bad seed", {}, {"seed": -1}, InputError, "seed: got -1"),
    ("one stream", {}, {"batch_generator": batches(0), "noise_generator": batches(0)}, InputError, "predictable"),
    ("no generator", {}, {"noise_generator": 3}, InputError, "generator of the noise: got int"),
    ("secure, last", {"release": "last"}, {"secure": True}, HypothesisError, "only composition"),
    ("secure and generator", {}, {"secure": True, "noise_generator": batches(1)}, InputError, "source of its own"),
    ("normalise, last", {"release": "last"}, {"method": "normalise"}, HypothesisError, "no projection"),
    ("automatic and a gradient bound", {"loss": BOUNDED}, {"method": "automatic"}, HypothesisError, "norm up to 0.4"),
    ("groups too large", {}, {"clip_groups": [Group(parameters=("*",), clip_norm=0.5)]}, InputError, "together they bound"),
    ("normalise in the run, last", {"release": "last", "clip_method": "normalise"}, {}, HypothesisError, "no projection"),
    ("two methods", {"clip_method": "automatic"}, {"method": "normalise"}, InputError, "the run says automatic"),
    ("clip after all", {"clip_method": "automatic"}, {"method": "clip"}, InputError, "the run says automatic"),
    ("groups, a name", {}, {"clip_groups": "0.*"}, InputError, "clip_groups: got '0"),
    ("groups not said", {"clip_groups": [0.24, 0.32]}, {}, InputError, "not which parameters"),
    (
        "other groups",
        {"clip_groups": [0.24, 0.32]},
        {"clip_groups": [Group(parameters=("0.*",), clip_norm=0.32), Group(parameters=("*",), clip_norm=0.24)]},
        InputError,
        "the run says .0.24, 0.32",
    ),
    ("SGD, last", {"release": "last"}, {"optimizer": lambda p: SGD(p, lr=0.5)}, HypothesisError, "or a loop of one's"),
    ("LBFGS", {}, {"optimizer": torch.optim.LBFGS}, InputError, "LBFGS"),
    ("optimiser and ridge", {"regulariser": {"kind": "ridge", "strength": 1.0}}, {"optimizer": SGD}, InputError, "belong to the plain"),
    ("optimiser of some", {}, {"optimizer": lambda p: SGD(p[:2], lr=0.5)}, InputError, "would never move"),
    ("optimiser of more", {}, {"optimizer": lambda p: SGD([*p, nn.Parameter(torch.ones(1))], lr=0.5)}, InputError, "not the model's"),
)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("changes", "options", "error", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals(changes: dict[str, Any], options: dict[str, Any], error: type[LetheError], message: str) -> None:
    model = make_network()
    run = make_network_run(**{"noise_multiplier": 1.0, **changes})
    given: dict[str, Any] = dict(options)
    if "optimizer" in options:
        given["optimizer"] = options["optimizer"](list(model.parameters()))
    before = flat(model)
    trained = {"model": model, "loss": CROSS_ENTROPY, "data": make_data(), "run": run}
    trained |= {name: given.pop(name) for name in trained if name in given}
    with pytest.raises(error, match=message):
        fit(**trained, **arguments(given))
    assert torch.equal(flat(model), before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_parameters_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match="needs float32 or float64"):
        fit(make_network(dtype), CROSS_ENTROPY, make_data(dtype), make_network_run(noise_multiplier=1.0))
