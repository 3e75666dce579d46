"""Random small models with records to train on, the same for the same seed: some that must be refused, and records of any size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from random_blocks import IMAGE, LAST, SEQUENCE
from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clip.groups import METHODS, Group

VOCABULARY = 7
Loss = Callable[[Tensor, Tensor], Tensor]
"""Of outputs, shape (B, k), and targets, whole numbers of shape (B,): one loss a record."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A model and two data sets that differ in one record, `place`, which is `other` in the second; `odd` ones are of an extreme kind."""

    seed: int
    model: nn.Module
    loss: Loss
    inputs: Tensor
    targets: Tensor
    place: int
    other: tuple[Tensor, Tensor]
    odd: Tensor
    clip_norm: float | tuple[Group, ...]
    method: str
    physical_size: int
    mixing: str | None
    description: str

    def replaced(self) -> tuple[Tensor, Tensor]:
        """The neighbouring data set."""
        inputs, targets = self.inputs.clone(), self.targets.clone()
        inputs[self.place], targets[self.place] = self.other
        return inputs, targets


class RandomModel(nn.Module):
    """A start for the kind of records, layers, and a head on what is pooled within each record."""

    def __init__(self, start: nn.Module, layers: list[nn.Module], width: int, outputs: int, pooled: tuple[int, ...]) -> None:
        super().__init__()
        self.start, self.layers, self.head, self.pooled = start, nn.Sequential(*layers), nn.Linear(width, outputs), pooled

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.layers(self.start(given))
        return self.head(hidden.mean(self.pooled) if self.pooled else hidden)


class Mixed(nn.Module):
    """What no private training may accept: a record's number depends on the others'."""

    seen: Tensor

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, given: Tensor) -> Tensor:
        return MIXING[self.how](given, self)


def _running(given: Tensor, module: Mixed) -> Tensor:
    module.seen.mul_(0.9).add_(given.detach().mean())
    return given - module.seen


MIXING: Mapping[str, Callable[[Tensor, Mixed], Tensor]] = {
    "mean": lambda given, _: given - given.mean(0),
    "detached mean": lambda given, _: given - given.detach().mean(0),
    "batch softmax": lambda given, _: given.softmax(0),
    "largest": lambda given, _: given / (1 + given.detach().abs().max()),
    "roll": lambda given, _: given + 0.3 * given.roll(1, 0),
    "sort": lambda given, _: given.sort(0).values,
    "running sum": lambda given, _: given.cumsum(0),
    "running mean": _running,
    "flipped": lambda given, _: 0.5 * given + 0.5 * given.flip(0),
    "first record": lambda given, _: given + given[:1].detach(),
    "normalised": lambda given, _: functional.batch_norm(given, None, None, training=True) if len(given) > 1 else given,
    "attention over records": lambda given, _: (
        given + (given.flatten(1) @ given.flatten(1).T).softmax(1).matmul(given.flatten(1)).view_as(given)
    ),
}


def _one_hot(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.one_hot(targets, outputs.shape[1]).to(outputs)


LOSSES: Mapping[str, Loss] = {
    "cross entropy": lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none"),
    "smoothed cross entropy": lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1),
    "squares": lambda outputs, targets: (outputs - _one_hot(outputs, targets)).square().sum(1),
    "distance": lambda outputs, targets: (outputs - _one_hot(outputs, targets)).norm(dim=1),
    "huber": lambda outputs, targets: functional.huber_loss(outputs, _one_hot(outputs, targets), reduction="none").sum(1),
    "hinge": lambda outputs, targets: functional.multi_margin_loss(outputs, targets, reduction="none"),
    "logistic": lambda outputs, targets: functional.softplus(-outputs[:, 0] * (2 * (targets % 2) - 1)),
    "exponential": lambda outputs, targets: (-outputs[:, 0] * (2 * (targets % 2) - 1)).exp(),
    "cosine": lambda outputs, targets: 1 - functional.cosine_similarity(outputs, 1 + _one_hot(outputs, targets)),
    "root": lambda outputs, targets: (outputs - _one_hot(outputs, targets)).abs().sqrt().sum(1),
    "logarithm": lambda outputs, targets: outputs.softmax(1).gather(1, targets[:, None])[:, 0].log().neg(),
    "own weight": lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none") * outputs.detach().norm(dim=1),
    "huge": lambda outputs, targets: 1e20 * outputs.sin().sum(1),
    "tiny": lambda outputs, targets: 1e-30 * outputs.sin().sum(1),
    "nothing": lambda outputs, targets: 0 * outputs.sum(1),
    "focal": lambda outputs, targets: (
        (1 - outputs.softmax(1).gather(1, targets[:, None])[:, 0]).square() * functional.cross_entropy(outputs, targets, reduction="none")
    ),
}


def random_case(seed: int) -> Case:
    """The case of a seed."""
    generator = np.random.default_rng([2016, seed])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _drawn(seed, generator)


def _drawn(seed: int, generator: np.random.Generator) -> Case:
    dtype = torch.float64 if generator.random() < 0.3 else torch.float32
    kind = str(generator.choice(["rows", "sequence", "image", "tokens"]))
    records, width, outputs = int(generator.integers(2, 11)), int(generator.choice([1, 2, 4, 6])), int(generator.choice([2, 3, 5]))
    model, shape, names, mixing = _model(kind, width, outputs, generator)
    model = model.to(dtype)
    if generator.random() < 0.2:
        model.eval()
    loss_name = str(generator.choice(list(LOSSES)))
    odd = torch.zeros(records, dtype=torch.bool)
    rows: list[Tensor] = []
    place = int(generator.integers(records))
    for record in range(records):
        size = _size(generator) if generator.random() < (0.6 if record == place else 0.06) else "ordinary"
        odd[record] = size != "ordinary"
        rows.append(_record(kind, shape, size, generator, dtype))
    other_size = _size(generator) if generator.random() < 0.5 else "ordinary"
    return Case(
        seed=seed,
        model=model,
        loss=LOSSES[loss_name],
        inputs=torch.stack(rows),
        targets=torch.tensor(generator.integers(outputs, size=records)),
        place=place,
        other=(_record(kind, shape, other_size, generator, dtype), torch.tensor(int(generator.integers(outputs)))),
        odd=odd,
        clip_norm=_clip_norm(model, generator),
        method=str(generator.choice(list(METHODS), p=[0.6, 0.2, 0.2])),
        physical_size=int(generator.integers(1 if mixing is None else 2, records + 1)) if generator.random() < 0.4 else records,
        mixing=mixing,
        description=f"{kind} {tuple(shape)} {dtype} B={records}: {', '.join(names)}; {loss_name}",
    )


def _model(kind: str, width: int, outputs: int, generator: np.random.Generator) -> tuple[nn.Module, tuple[int, ...], list[str], str | None]:
    columns, positions = int(generator.integers(1, 7)), int(generator.choice([1, 2, 3, 5, 8]))
    table, pooled, shape = LAST, (), (columns,)
    start: nn.Module = nn.Linear(columns, width)
    if kind == "sequence":
        table, pooled, shape = SEQUENCE, (1,), (positions, columns)
    elif kind == "tokens":
        table, pooled, shape = SEQUENCE, (1,), (positions,)
        start = nn.Embedding(VOCABULARY, width, padding_idx=0 if generator.random() < 0.3 else None)
    elif kind == "image":
        side = int(generator.choice([3, 4, 6]))
        table, pooled, shape = IMAGE, (2, 3), (columns, side, side)
        start = nn.Conv2d(columns, width, int(generator.choice([1, 3])), stride=int(generator.choice([1, 2])), padding=1)
    names = [str(name) for name in generator.choice(list(table), size=int(generator.integers(1, 5)))]
    if width == 1:  # one channel has no variance, and torch says so
        names = [name for name in names if name not in ("orthogonal", "encoder")]
    if (kind in ("sequence", "tokens") and positions == 1) or kind == "image":
        names = [name for name in names if name != "instance norm"]
    if width == positions == 1:  # nor has one number
        names = [name for name in names if name != "group norm"]
    layers = [table[name](width, generator) for name in names]
    mixing = str(generator.choice(list(MIXING))) if generator.random() < 0.12 else None
    if mixing is not None:
        layers.insert(int(generator.integers(len(layers) + 1)), Mixed(mixing))
        names = [*names, f"mixing by {mixing}"]
    return RandomModel(start, layers, width, outputs, pooled), shape, names, mixing


def _size(generator: np.random.Generator) -> str:
    return str(generator.choice(["zero", "nan", "inf", "one nan", "large", "huge", "one huge", "small", "equal", "alternating"]))


def _record(kind: str, shape: tuple[int, ...], size: str, generator: np.random.Generator, dtype: torch.dtype) -> Tensor:
    if kind == "tokens":
        tokens = generator.integers(1, VOCABULARY, size=shape)
        if size in ("zero", "nan"):
            tokens[:] = 0
        elif size in ("equal", "huge"):
            tokens[:] = tokens[0]
        return torch.tensor(tokens)
    numbers = torch.tensor(generator.normal(size=shape), dtype=dtype)
    one = tuple(int(generator.integers(length)) for length in shape)
    if size in ("zero", "nan", "inf"):
        numbers = torch.full_like(numbers, {"zero": 0.0, "nan": float("nan"), "inf": float("inf")}[size])
    elif size == "one nan":
        numbers[one] = float("nan")
    elif size == "large":
        numbers = numbers * 10 ** generator.uniform(0, 8)
    elif size == "huge":
        numbers = numbers * 10 ** generator.uniform(8, 37 if dtype == torch.float32 else 300)
    elif size == "one huge":
        numbers[one] = 10 ** generator.uniform(3, 37)
    elif size == "small":
        numbers = numbers * 10 ** generator.uniform(-44, -3)
    elif size == "equal":
        numbers = torch.full_like(numbers, float(generator.normal()) * 10 ** generator.uniform(-3, 6))
    elif size == "alternating":  # what cancels in sums over positions
        numbers = numbers[..., :1].sign() * 10 ** generator.uniform(0, 8) * torch.ones_like(numbers)
    return numbers


def _clip_norm(model: nn.Module, generator: np.random.Generator) -> float | tuple[Group, ...]:
    norm = float(10 ** generator.uniform(-4, 3))
    if generator.random() < 0.7:
        return norm
    return (
        Group(parameters=("start.*",), clip_norm=norm),
        Group(parameters=("*bias",), clip_norm=norm * float(generator.choice([0.1, 1.0, 7.0]))),
        Group(parameters=("*",), clip_norm=norm / 2),
    )
