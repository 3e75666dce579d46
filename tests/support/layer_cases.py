"""Every layer that has a rule, and some without, the shape of a record for it; and the slow truth: each record alone, by autograd."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils._pytree import tree_map

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.fast import Recording
from lethe.train.clip.parts.outer_products import Memory
from lethe.train.clip.parts.part import ParameterGradients, UnitRows
from lethe.train.clip.rules.registry import layers_of

TABLE, RECORDS, CLIP = 5, 7, 0.7
F64 = torch.float64
Losses = Callable[[Tensor], Tensor]
Outputs = Callable[[Any], Tensor | Sequence[Tensor]]
"""Of a batch, records first, to one or more tensors, records first."""


def losses_of(outputs: Tensor | Sequence[Tensor]) -> Tensor:
    """One number a record, whose gradient differs in each number of the outputs."""
    tensors = [outputs] if isinstance(outputs, Tensor) else outputs
    flat = torch.cat([tensor.flatten(1).double() for tensor in tensors], dim=1)
    return (flat * (flat + torch.linspace(-1, 1, flat.shape[1], dtype=torch.float64))).sum(1)


def fast_parts(
    model: nn.Module, losses: Callable[[], Tensor], records: int, *, layout: str = "blocks", memory: int = 2**23
) -> dict[str, ParameterGradients]:
    """What the rules make of one batch, by the parameters' names."""
    names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
    recording = Recording(records, layout, Memory(memory), torch.device("cpu"))
    with recording.running(layers_of(model), list(names)):
        parts = recording.gradients(losses().sum())
    assert all(parameter.requires_grad for parameter in names)
    return {names[parameter]: part for parameter, part in parts.items()}


def true_gradients(model: nn.Module, losses: Callable[[int], Tensor], records: int) -> dict[str, Tensor]:
    """Of each trained parameter, shape (B, *shape), float64; `losses(i)` is that of record i alone."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in named}
    for record in range(records):
        model.zero_grad()
        losses(record).sum().backward()
        for name, parameter in named.items():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            rows[name].append(gradient.double().clone())
    model.zero_grad()
    return {name: torch.stack(gradients) for name, gradients in rows.items()}


@torch.no_grad()
def agree(parts: dict[str, ParameterGradients], truth: dict[str, Tensor], rel: float = 1e-9) -> None:
    """Norms, weighted sums, single gradients, sums over units, and what is left without a record are the true ones."""
    records = len(next(iter(truth.values())))
    scale = max(1e-3, max(float(rows.abs().max()) for rows in truth.values()))
    weights = torch.linspace(-1.0, 2.0, records, dtype=torch.float64)
    units = UnitRows([[0, records - 1], [1], []] if records > 2 else [[record] for record in range(records)], torch.device("cpu"))
    gone = torch.arange(records) == 1
    assert parts.keys() == truth.keys()

    def near(found: Tensor, expected: Tensor, power: int = 1) -> None:
        assert found.isfinite().all()
        torch.testing.assert_close(found.double().flatten(), expected.flatten(), rtol=rel, atol=rel * (10 * scale) ** power)

    for name, rows in truth.items():
        part = parts[name]
        near(part.rows().reshape(rows.shape), rows)
        near(part.squares(), rows.unsqueeze(-1).flatten(1).square().sum(1), 2)
        assert part.weighted(weights).dtype == torch.float64
        near(part.weighted(weights), torch.tensordot(weights, rows, 1))
        joined = part.grouped(units)
        near(joined.squares(), units(rows).sum(1).unsqueeze(-1).flatten(1).square().sum(1), 2)
        near(joined.weighted(torch.ones(len(units(rows)), dtype=torch.float64)), units(rows).sum(1).sum(0))
        part.drop(gone)
        near(part.weighted(weights), torch.tensordot(weights * ~gone, rows, 1))


def check(
    model: nn.Module, outputs: Outputs, batch: Any, *, rel: float = 1e-9, layout: str = "blocks", memory: int = 2**23, records: int = 3
) -> None:
    """The rules agree with the truth about this batch, a nest of tensors with records first."""

    def alone(record: int) -> Tensor:
        return losses_of(outputs(tree_map(lambda tensor: tensor[record : record + 1], batch)))

    parts = fast_parts(model, lambda: losses_of(outputs(batch)), records, layout=layout, memory=memory)
    agree(parts, true_gradients(model, alone, records), rel)


def output_of(layer: nn.Module, batch: Tensor) -> Tensor:
    """What a layer that takes records first gives; of several tensors the first."""
    output = layer(batch, batch, batch) if isinstance(layer, nn.MultiheadAttention) else layer(batch)
    return output[0] if isinstance(output, tuple) else output


def folded(layer: nn.Module, batch: Tensor, layout: str, *, memory: int = 2**23) -> None:
    """A layer that is given two rows a record, one after another or side by side."""

    def outputs(batch: Tensor) -> Tensor:  # (B, 2, ...)
        if layout == "interleaved":
            return output_of(layer, batch.flatten(0, 1)).unflatten(0, (len(batch), 2)).flatten(1)
        return output_of(layer, batch.transpose(0, 1).flatten(0, 1)).unflatten(0, (2, len(batch))).transpose(0, 1).flatten(1)

    check(layer, outputs, batch, layout=layout, memory=memory)


class Conv1D(nn.Module):
    """As transformers has it: a weight of shape (inputs, outputs)."""

    __module__ = "transformers.pytorch_utils"
    __qualname__ = "Conv1D"

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, given: Tensor) -> Tensor:
        return given @ self.weight + self.bias


class Scaled(nn.Module):
    """Of its own: a parameter, a list of them and a layer within."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))
        self.shifts = nn.ParameterList([torch.randn(4), torch.randn(())])
        self.inner = nn.Linear(4, 4)

    def forward(self, given: Tensor, *, other: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden = self.inner(given * self.scale + self.shifts[0]).tanh()
        return hidden * self.shifts[1], hidden if other is None else hidden + other


def kept(layer: nn.Module, *shape: int) -> nn.Module:
    """With running statistics of something, in eval mode."""
    with torch.no_grad():
        layer(torch.randn(8, *shape))
    return layer.eval()


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **{f"linear of {shape}": (lambda: nn.Linear(4, 3), shape) for shape in ((4,), (1, 4), (5, 4), (2, 3, 4), (40, 4))},
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), (5, 4)),
    "a wide linear": (lambda: nn.Linear(64, 64), (3, 64)),
    "Conv1D": (lambda: Conv1D(3, 4), (5, 4)),
    "layer norm": (lambda: nn.LayerNorm(4), (4,)),
    "layer norm without bias": (lambda: nn.LayerNorm(4, bias=False), (5, 4)),
    "layer norm of two": (lambda: nn.LayerNorm((5, 4), eps=0.1), (2, 5, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), (5, 4)),
    "rms norm of two": (lambda: nn.RMSNorm((5, 4), eps=0.1), (5, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4,)),
    "group norm of places": (lambda: nn.GroupNorm(4, 4, eps=0.1), (4, 3, 2)),
    "instance norm": (lambda: nn.InstanceNorm1d(4, affine=True), (4, 5)),
    "instance norm 3d": (lambda: nn.InstanceNorm3d(4, affine=True, eps=0.1), (4, 3, 2, 2)),
    "batch norm": (lambda: kept(nn.BatchNorm1d(4), 4), (4,)),
    "batch norm 2d": (lambda: kept(nn.BatchNorm2d(4, eps=0.1), 4, 3, 2), (4, 3, 2)),
    "instance norm that keeps": (lambda: kept(nn.InstanceNorm1d(4, affine=True, track_running_stats=True), 4, 5), (4, 5)),
    "instance norm that keeps all": (lambda: kept(nn.InstanceNorm1d(4, affine=True, momentum=None), 4, 5), (4, 5)),
    "no rule": (lambda: nn.PReLU(4), (4, 3)),
    "a layer of its own": (Scaled, (5, 4)),
    "parametrised": (
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)), parametrizations.orthogonal(nn.Linear(3, 3))),
        (4,),
    ),
    "convolution": (lambda: nn.Conv1d(5, 4, 3), (5, 6)),
    "convolution of a point": (lambda: nn.Conv1d(4, 4, 1), (4, 4)),
    "transposed convolution": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), (4, 3)),
    "attention": (lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True, batch_first=True), (5, 4)),
    "attention, parametrised": (lambda: _normed(nn.MultiheadAttention(4, 2, batch_first=True)), (5, 4)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True), (5, 4)),
    "lstm": (lambda: nn.LSTM(4, 4, proj_size=2, batch_first=True), (5, 4)),
    "gru": (lambda: nn.GRU(4, 4, batch_first=True), (5, 4)),
    "rnn": (lambda: nn.RNN(4, 4, batch_first=True), (5, 4)),
    "lstm cell": (lambda: nn.LSTMCell(4, 3), (4,)),
    "gru cell": (lambda: nn.GRUCell(4, 3), (4,)),
    "rnn cell": (lambda: nn.RNNCell(4, 3, bias=False, nonlinearity="relu"), (4,)),
    **{f"embedding of {shape}": (lambda: nn.Embedding(TABLE, 4, padding_idx=-1), shape) for shape in ((), (6,), (2, 3))},
    "sparse embedding": (lambda: nn.Embedding(TABLE, 4, sparse=True, padding_idx=2), (6,)),
    **{f"bag, {mode}": (lambda mode=mode: nn.EmbeddingBag(TABLE, 4, mode=mode, padding_idx=1), (6,)) for mode in ("sum", "mean", "max")},
}


def _normed(layer: nn.MultiheadAttention) -> nn.Module:
    parametrizations.weight_norm(layer.out_proj)
    return layer


def case(name: str, dtype: torch.dtype = F64, records: int = 3) -> tuple[nn.Module, Tensor]:
    """The layer, with parameters that are no whole numbers, and a batch."""
    torch.manual_seed(0)
    make, shape = CASES[name]
    layer = make()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    if any(isinstance(layer, kind) for kind in (nn.Embedding, nn.EmbeddingBag)):
        batch = torch.randint(TABLE, (records, *shape))
        batch.view(records, -1)[1] = 1  # nothing but padding
        return layer.to(dtype), batch
    return layer.to(dtype), torch.randn(records, *shape, dtype=dtype)


class Escaping(torch.autograd.Function):
    """A function of one's own, through which neither hooks nor vmap follow."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0].clone()


class Unseen(torch.autograd.Function):
    """A function of one's own, which vmap follows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(given: Tensor, scale: Tensor) -> Tensor:
        return given + 0.1 * scale

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], 0.1 * gradients[0].flatten(0, -2).sum(0)


class Model(nn.Module):
    """A table, a tied head, a convolution, a normalisation and a bare parameter, of which `way` says by what they can be followed."""

    def __init__(self, way: str = "fast") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.mix, self.norm = nn.Embedding(9, 6), nn.Conv1d(6, 6, 3, padding=1), nn.LayerNorm(6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.table.weight
        self.scale, self.way = nn.Parameter(torch.ones(6)), way
        self.to(F64)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.table(tokens)
        hidden = hidden + torch.tanh(self.mix(hidden.mT)).mT
        if self.way == "alone":
            hidden = Escaping.apply(hidden)
            assert isinstance(hidden, Tensor)
            hidden.sum().item()  # vmap cannot
        if self.way != "fast":  # where no layer sees it
            hidden = Unseen.apply(hidden, self.norm.weight)
            assert isinstance(hidden, Tensor)
        return self.head(self.norm(hidden) * self.scale)


def batch_of(records: int = RECORDS, seed: int = 1) -> Tensor:
    return torch.randint(9, (records, 5), generator=torch.Generator().manual_seed(seed))


def mean_losses_of(model: nn.Module) -> Losses:
    return lambda tokens: -model(tokens).log_softmax(-1).gather(2, tokens.roll(1, 1)[..., None]).mean((1, 2))


def flat(sums: dict[nn.Parameter, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in sums.values()])


def truth(model: nn.Module, batch: Tensor, units: Sequence[Sequence[int]] | None = None, losses: Losses | None = None) -> Tensor:
    """The gradients of records alone, or of units: shape (B, numbers)."""
    losses, units = losses or mean_losses_of(model), units or [[record] for record in range(len(batch))]
    alone = true_gradients(model, lambda unit: torch.stack([losses(batch[row : row + 1]).sum() for row in units[unit]]).mean(), len(units))
    return torch.cat([rows.flatten(1) for rows in alone.values()], 1)


def clipped(rows: Tensor, clip: float = CLIP) -> Tensor:
    """The sum of rows that are clipped; a row of zeros adds nothing."""
    return (rows * (clip / rows.norm(dim=1).clamp(min=1e-300)).clamp(max=1)[:, None]).sum(0)


def added(
    model: nn.Module, *batches: Tensor, clip: Any = CLIP, way: str | None = None, clipper: Clipper | None = None, **options: Any
) -> Tensor:
    """The sums of batches, which come in a way that is checked."""
    given = {name: options.pop(name) for name in ("units", "counted") if name in options}
    clipper = clipper or Clipper(model, mean_losses_of(model), clip, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        for batch in batches:
            clipper.add(batch, **given)
    if way is not None:
        assert clipper.ways == {way}
    return flat(clipper.take())


def near(one: Tensor, other: Tensor, rtol: float = 1e-9) -> None:
    torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * float(other.abs().max()))
