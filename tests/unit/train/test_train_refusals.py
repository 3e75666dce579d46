"""What training refuses before a step: the call, and what the error says of the field, of what came, or of the remedy."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_linear
from networks import CROSS_ENTROPY, IDS, RECORDS, flat, make_data, make_network, make_network_run, make_users_run
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import lethe
from lethe.errors import LetheError
from lethe.run.regularisers import L2
from lethe.train import Callback, Checkpoints, Group, Head, PrivacyEngine, ProximalGroup, SparseSelection, TrainOptions, fit

NAN = float("nan")
FEATURES, LABELS = make_data()
SAME = torch.Generator()
FIXED = {"batches": {"design": "cyclic", "size": 5}}  # no first batch is empty
BOUNDED = {"kind": "smooth", "smoothness": 1.0, "gradient_bound": 0.1}
SOFTMAX = {"kind": "softmax_regression", "feature_norm": 1.5, "evidence": "enforced"}
LAST = {"release": "last"}
POSITIONS, COLUMN = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (3, 2))).double(), nn.Linear(4, 1).double()


def seed(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def by_fit(changes: dict[str, Any], given: dict[str, Any]) -> None:
    """`fit` of a network, whose run and arguments are changed; an optimiser is made of the parameters. Nothing moves."""
    model, run = make_network(), make_network_run(**{"noise_multiplier": 1.0, **changes})
    before, own = flat(model), dict(given)
    if callable(own.get("optimizer")):
        own["optimizer"] = own["optimizer"](list(model.parameters()))
    trained = {"model": model, "loss": CROSS_ENTROPY, "data": (FEATURES, LABELS), "run": run}
    trained |= {name: own.pop(name) for name in trained if name in own}
    try:
        fit(**trained, **(own if "options" in own else arguments(own)))
    finally:
        assert torch.equal(flat(model), before)


def by_words(given: dict[str, Any]) -> None:
    by_fit({}, {"run": None, "epsilon": 3.0, "delta": 1e-3, "epochs": 3, "batch_size": 6, **given})


def of_users(changes: dict[str, Any], given: dict[str, Any]) -> None:
    by_fit({}, {"run": make_users_run().replace(**changes), **given})


def engine(changes: dict[str, Any]) -> None:
    """An engine for (epsilon, delta); no guard is left behind on its optimiser."""
    model = make_network()
    optimizer = SGD(model.parameters(), lr=0.1)
    words: dict[str, Any] = {"data": loader(), "epsilon": 3.0, "delta": 1e-3, "epochs": 2, "clip_norm": 0.4, "optimizer": optimizer}
    try:
        PrivacyEngine(**{"model": model, "losses": lambda batch: CROSS_ENTROPY(model(batch[0]), batch[1]), **words, **changes})
    finally:
        optimizer.step()


def engine_of_run(changes: dict[str, Any], data: Any = None) -> None:
    run = make_network_run(**{"noise_multiplier": 1.0, **changes})
    engine({"run": run, "data": make_data() if data is None else data, **dict.fromkeys(("epsilon", "delta", "epochs", "clip_norm"))})


def loader(**changes: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*make_data()), **{"batch_size": 5, "shuffle": True, **changes})


def linear(changes: dict[str, Any], given: dict[str, Any]) -> None:
    run = lethe.Run(**{"records": 23, "passes": 3, "step_size": 0.4, "clip_norm": 0.6, "noise_multiplier": 2.0, "loss": SOFTMAX,
                       "release": "last", "neighbours": "replace_one", **FIXED, **changes})  # fmt: skip
    fit_linear(run, FEATURES.numpy(), LABELS.numpy(), **{"classes": 3, "seed": 0, **given})


def head(changes: dict[str, Any], given: dict[str, Any]) -> None:
    """A head on a backbone that changes nothing; its weights stay."""
    top = given.get("head", nn.Linear(4, 3, bias=False).double())
    run = given.get("run") or make_network_run("cyclic", **{"noise_multiplier": 1.0, "clip_norm": None, "loss": SOFTMAX, **LAST, **changes})
    data = given.get("data", (FEATURES, LABELS))
    before = [parameter.detach().clone() for parameter in top.parameters()]
    try:
        options = TrainOptions(**{name: value for name, value in given.items() if name not in ("head", "backbone", "run", "data")})
        fit(Head(given.get("backbone", nn.Identity()), top), None, data, run, options=options)
    finally:
        assert all(torch.equal(one, other) or other.isnan().any() for one, other in zip(before, top.parameters(), strict=True))


def hooked() -> nn.Module:
    layer = nn.Linear(4, 3, bias=False).double()
    layer.register_forward_hook(lambda module, inputs, outputs: outputs * 2)
    return layer


class Halved(nn.CrossEntropyLoss):
    """What a class of the user's own computes nobody knows."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, target) / 2


def asking() -> Callback:
    callback = Callback()
    callback.private = "yes"  # pyright: ignore[reportAttributeAccessIssue]
    return callback


class Tempered(nn.Module):
    """A loss with a temperature of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return CROSS_ENTROPY(outputs * self.scale, targets)


# Of networks alone: something that is not the default for each of their options.
OF_NETWORKS: dict[str, Any] = {
    "lr_scheduler": "cosine",
    "validation_data": [1],
    "patience": 2,
    "method": "clip",
    "smoothing": 0.01,
    "users": [1, 2],
    "records_per_user": 2,
    "views": 2,
    "ema": 0.9,
    "physical_size": 4,
    "gradient_memory": 0,
    "secure": True,
    "isolation": "declared",
    "clip_groups": [Group(parameters=("*",), clip_norm=0.1)],
    "proximal_groups": [ProximalGroup(regularisers=())],
    "sparse_selection": SparseSelection(parameters=("0.weight",), threshold=1.0),
    "checkpoints": Checkpoints(folder="nowhere"),
}
OF_ALL = {"noise_policy", "seed", "batch_generator", "noise_generator", "progress", "ledger", "allow_large_delta"}
RIDGE = ProximalGroup(regularisers=(L2(strength=1.0),))
TWO = [Group(parameters=("*",), clip_norm=0.3), Group(parameters=("*",), clip_norm=0.4)]
PART = ProximalGroup(regularisers=(L2(strength=1.0),), parameters=("0.bias",))
FITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"noise_multiplier": None}, {}, "no noise yet"),
    ({"clip_norm": None, "loss": BOUNDED}, {}, "clip_norm: null"),
    (FIXED, {"loss": lambda outputs, targets: CROSS_ENTROPY(outputs, targets).mean()}, "one loss a record"),
    (FIXED, {"loss": lambda outputs, targets: {"class": CROSS_ENTROPY(outputs, targets)}}, "got dict"),
    ({}, {"loss": nn.CrossEntropyLoss}, "(?s)loss: got the class.*reduction="),
    (FIXED, {"loss": Halved()}, r"losses: got shape \(\).*a mean hides the records"),
    (FIXED, {"loss": nn.CrossEntropyLoss(reduction="sum")}, r"losses: got shape \(\).*a mean hides the records"),
    (FIXED, {"loss": Tempered()}, "parameters of its own"),
    (FIXED, {"model": POSITIONS, "data": (FEATURES, LABELS[:, None].repeat(1, 2))}, r"losses: got shape \(\d+, 2\)"),
    (FIXED, {"model": COLUMN, "loss": nn.MSELoss(), "data": (FEATURES, FEATURES[:, 0].clone())}, r"(?s)of every output.*\[:, None\]"),
    ({}, {"loss": None}, r"loss: got NoneType; it needs a function of \(outputs, targets\)"),
    (FIXED, {"data": (FEATURES, LABELS + 5)}, "(?s)outputs.*out of bounds.*whole numbers"),
    (FIXED, {"data": (FEATURES, LABELS.double())}, "(?s)targets, float64.*whole numbers"),
    (FIXED, {"data": (FEATURES[:, :3], LABELS)}, r"forward fails on a batch, float64 of shape \(5, 3\)"),
    ({}, {"data": {"x": FEATURES, "label": LABELS}}, "forward of Sequential takes input: it needs input"),
    (FIXED, {"data": FEATURES}, "one tensor"),
    (FIXED, {"data": make_data(torch.float32)}, "float32 does not go into this model"),
    ({}, {"model": make_network(torch.float16), "data": make_data(torch.float16)}, "needs float32 or float64"),
    ({}, {"model": nn.Sequential(nn.DataParallel(make_network()))}, "0: wrapped in DataParallel"),
    ({"records": 24}, {}, "records: the run says 24"),
    ({}, {"physical_size": 0}, "physical_size"),
    ({}, {"seed": 1, "batch_generator": seed(0)}, "seed: given together"),
    ({}, {"seed": 1, "secure": True}, "seed: given together"),
    ({}, {"batch_generator": seed(0), "noise_generator": seed(0)}, "predictable"),
    ({}, {"secure": True, "noise_generator": seed(1)}, "source of its own"),
    (LAST, {"secure": True}, "only composition"),
    (LAST, {"method": "normalise"}, "no projection"),
    ({**LAST, "clip_method": "normalise"}, {}, "no projection"),
    ({}, {"method": "clamp"}, "method: got"),
    ({"loss": BOUNDED}, {"method": "automatic"}, "norm up to 0.4"),
    ({"clip_method": "automatic"}, {"method": "normalise"}, "the run says automatic"),
    ({}, {"clip_groups": [Group(parameters=("*",), clip_norm=0.5)]}, "together they bound"),
    ({}, {"clip_groups": "0.*"}, "clip_groups: got '0.*'per_layer', or None"),
    ({"clip_groups": [0.24, 0.32]}, {}, "not which parameters"),
    ({"clip_groups": [0.24, 0.32]}, {"clip_groups": TWO}, "the run says .0.24, 0.32"),
    ({"clip_groups": [0.01, 0.01]}, {"clip_groups": "per_layer"}, "the run says"),
    (LAST, {"optimizer": lambda own: SGD(own, lr=0.5)}, "or a training loop of your own"),
    ({}, {"optimizer": torch.optim.LBFGS}, "LBFGS"),
    ({"regulariser": {"kind": "ridge", "strength": 1.0}}, {"optimizer": SGD}, "belong to the plain"),
    ({}, {"optimizer": lambda own: SGD(own[:2], lr=0.5)}, "would never move"),
    ({}, {"optimizer": lambda own: SGD([*own, nn.Parameter(torch.ones(1))], lr=0.5)}, "not the model's"),
    *(({}, {"ema": decay}, "ema: got") for decay in (0.0, 1.0, "0.9", NAN)),
    (LAST, {"ema": 0.9}, r"ema: got 0\.9, and release is last"),
    *(({}, {"callbacks": strange}, "Callback") for strange in (print, "tensorboard", 3, [Callback(), None])),
    ({}, {"callbacks": asking()}, "whose private is True or False"),
    ({}, {"noise_policy": lambda seen: 2.0}, "no noise_budget"),
    ({"noise_budget": 1.0}, {"noise_policy": 2.0}, "noise_policy: got float"),
    ({"noise_budget": 1.0, "noise_multiplier": None}, {}, "noise_multiplier: null"),
    ({"noise_budget": 1.0}, {"noise_policy": lambda seen: 2.0, "checkpoints": "never made"}, "given together with noise_policy"),
    ({}, {"options": {"seed": 1}}, "options: got dict"),
    ({}, {"optimizer": "sgd", "options": TrainOptions(lr_scheduler=lambda own: None)}, "lr_scheduler: the function returned NoneType"),
    ({}, {"optimizer": "sgd", "options": TrainOptions(lr_scheduler="cosin")}, "lr_scheduler: got 'cosin'"),
    ({}, {"options": TrainOptions(progress="yes")}, "progress: got 'yes'"),  # pyright: ignore[reportArgumentType]
    (LAST, {"proximal_groups": [PART]}, "plain SGD steps"),
    ({"regulariser": L2(strength=1.0)}, {"proximal_groups": [PART]}, "belong to the plain recursion"),
    ({**FIXED, "passes": 3, "noise_at": "pass_ends", "pass_weights": 1.0}, {"proximal_groups": [PART]}, "pass_weights"),
    ({}, {"proximal_groups": [PART, PART]}, "in a group twice"),
    ({}, {"proximal_groups": [ProximalGroup(regularisers=RIDGE.regularisers, parameters=("9.bias",))]}, "not one that is trained"),
    ({}, {"proximal_groups": [ProximalGroup(regularisers=RIDGE.regularisers, parameters=())]}, "got no names"),
    ({}, {"proximal_groups": [ProximalGroup(regularisers=RIDGE.regularisers, parameters="0.bias")]}, "needs names"),  # pyright: ignore
    ({}, {"proximal_groups": [ProximalGroup(regularisers=())]}, "at least one"),
    ({}, {"proximal_groups": [ProximalGroup(regularisers=(3.0,))]}, "no proximal step"),  # pyright: ignore[reportArgumentType]
    ({}, {"proximal_groups": PART}, "needs a list of ProximalGroup"),
]
OF_USERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, "the run says user; it needs users"),
    ({"unit": "record", "records": RECORDS}, {"users": IDS}, "the run says record; users are given"),
    ({"unit": "record", "records": RECORDS}, {"records_per_user": 2}, "records_per_user: given without users"),
    ({}, {"users": IDS[:-1]}, "got 22 ids for 23 records"),
    ({"records": 10}, {"users": IDS}, "the data are of 9 users"),
    ({}, {"users": IDS.astype(float)}, "types float"),
    ({}, {"users": "who"}, "names a column, and these data, a tuple, have no such"),
    ({}, {"users": IDS, "records_per_user": 0}, "records_per_user = 0"),
    ({}, {"users": IDS, "views": 0}, "views = 0"),
]
WORDS: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": NAN}, "epsilon"),
    ({"epochs": 1.5}, "epochs"),
    ({"batch_size": 0}, "batch_size"),
    ({"lr": NAN}, "lr"),
    ({"epsilon": None, "batch_size": None}, "epsilon: none was given, and no run"),
    ({"delta": None, "batch_size": None, "epochs": None}, "delta: none was given"),
    ({"epsilon": -1.0, "batch_size": None}, "epsilon = -1.0"),
    ({"delta": 0.5, "batch_size": None}, "delta"),
    ({"optimizer": "adamm"}, "optimizer: got 'adamm'"),
]
UNKNOWN = "(?s)PrivacyEngine takes no such.*"
ENGINES: list[tuple[dict[str, Any], str]] = [
    ({"max_grad_norm": 1.0}, UNKNOWN + "clip_norm="),
    ({"users": [1] * RECORDS}, UNKNOWN + r"TrainOptions\(users="),
    ({"criterion": CROSS_ENTROPY}, UNKNOWN + r"losses=lambda batch: criterion\(model\(batch\[0\]\)"),
    ({"learning_speed": 3}, UNKNOWN + "it knows model, optimizer"),
    ({"losses": None}, "(?s)losses: got NoneType.*losses=lambda batch"),
    ({"epsilon": None}, "epsilon: none was given, and no run"),
    ({"delta": None}, "delta: none was given"),
    ({"epochs": 1.5}, "epochs"),
    ({"run": make_network_run(noise_multiplier=1.0)}, "epsilon: given together with a run"),
    ({"data": loader(batch_size=None, shuffle=False)}, "makes batches of its own"),
    ({"data": loader(shuffle=False, sampler=WeightedRandomSampler([1.0] * 7, 7))}, "draws some records more often"),
    ({"options": TrainOptions(lr_scheduler="cosine")}, "lr_scheduler: PrivacyEngine does not know it"),
]
ENGINES_OF_RUNS: list[tuple[dict[str, Any], str]] = [
    ({"regulariser": {"kind": "ridge", "strength": 1.0}}, "belong to the plain recursion"),
    (LAST, "or a training loop of your own"),
    ({"records": 22}, "records: the run says 22"),
    ({"noise_budget": 1.0}, "a training loop of your own cannot have it"),
]
LINEARS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"noise_multiplier": None}, {}, "noise_multiplier: null"),
    ({"records": 24}, {}, "the run says 24; the features have 23 rows"),
    ({"loss": {"kind": "convex", "smoothness": 1.0}}, {}, "a loss of a linear model"),
    ({"regulariser": {"kind": "simplex", "total": 1.0}}, {}, "simplex"),
    *(
        ({"clip_norm": 0.1, **other}, {}, "linear models are clipped by projection")
        for other in ({"clip_method": "normalise"}, {"clip_groups": [0.06, 0.08]}, {"clip_groups": [0.1]})
    ),
    *(({}, {option: value}, f"^{option}: a Linear does not know it") for option, value in OF_NETWORKS.items()),
    ({}, {"classes": None}, "classes: got None"),
    ({}, {"classes": 2}, "it needs a class, a whole number from 0 to 1"),
    ({}, {"seed": -1}, "seed: got -1"),
    ({}, {"noise_generator": torch.Generator()}, "together with a generator"),
    ({}, {"seed": None, "noise_generator": SAME, "batch_generator": SAME}, "same state"),
    ({}, {"seed": None, "noise_generator": torch.Generator(), "batch_generator": torch.Generator()}, "same state"),
    ({}, {"initial": np.zeros((3, 3))}, "initial: got shape"),
    ({}, {"initial": np.full((4, 3), NAN)}, r"initial\[0, 0\]"),
    ({}, {"initial": np.full((4, 3), 1e200)}, "the norm of the iterates has no bound"),
    ({}, {"dtype": "float16"}, "dtype: got 'float16'"),
]
HEADS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"noise_multiplier": None}, {}, "noise_multiplier: null"),
    ({"loss": {"kind": "unknown"}, "clip_norm": 1.0}, {}, "a loss of a linear model"),
    ({"records": RECORDS + 1}, {}, "the run says 24; the data have 23"),
    *(({}, {option: value}, f"^{option}: a Head does not know it") for option, value in OF_NETWORKS.items() if option != "physical_size"),
    ({}, {"run": "run"}, "needs a lethe.Run"),
    ({}, {"head": nn.Linear(4, 1, bias=False).double()}, "has 1 outputs"),
    ({}, {"head": nn.Linear(4, 3).double()}, "head: has a bias; run.loss.intercept is False"),
    ({"loss": {**SOFTMAX, "intercept": True}}, {}, "head: has no bias; run.loss.intercept is True"),
    ({}, {"head": hooked()}, "plain torch.nn.Linear"),
    ({}, {"head": nn.utils.parametrizations.weight_norm(nn.Linear(4, 3).double())}, "plain torch.nn.Linear"),
    ({}, {"head": nn.Linear(4, 3, bias=False, dtype=torch.bfloat16)}, "needs float64 or float32"),
    ({}, {"head": nn.Linear(5, 3, bias=False).double()}, "one vector of 5 real numbers"),
    ({}, {"backbone": nn.LSTM(4, 4).double().requires_grad_(False)}, "gave tuple"),
    ({}, {"backbone": lambda rows: rows}, "needs a torch.nn.Module"),
    ({}, {"backbone": nn.Linear(4, 4).double()}, "backbone is not trained"),
    ({}, {"backbone": nn.Linear(4, 4, device="meta").requires_grad_(False)}, "one device"),
    ({}, {"data": (FEATURES,)}, "records of 1 tensors"),
    ({}, {"data": (FEATURES, LABELS + 1)}, "a whole number from 0 to 2"),
    ({}, {"data": (FEATURES / 0 * 0, LABELS)}, "needs a finite number"),
    ({}, {"physical_size": True}, "physical_size"),
]


def rows() -> Iterator[tuple[str, Callable[[], Any], str]]:
    for call, table in ((by_fit, FITS), (of_users, OF_USERS), (linear, LINEARS), (head, HEADS)):
        yield from ((call.__name__, lambda call=call, row=row: call(row[0], row[1]), row[2]) for row in table)
    for one, few in ((by_words, WORDS), (engine, ENGINES), (engine_of_run, ENGINES_OF_RUNS)):
        yield from ((one.__name__, lambda one=one, given=given: one(given), said) for given, said in few)


@pytest.mark.parametrize(("call", "said"), [pytest.param(call, said, id=f"{name}: {said}") for name, call, said in rows()])
@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:Lazy modules:UserWarning", "ignore:Complex modules:UserWarning")
def test_it_is_refused_by_name_in_three_lines(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(LetheError, match=said) as refused:
        call()
    assert len(str(refused.value).splitlines()) <= 3


def test_every_option_is_one_of_all_models_or_of_networks() -> None:
    assert OF_NETWORKS.keys() | OF_ALL == {field.name for field in fields(TrainOptions)}
