"""Every layer that has a rule, and some without, and the shape of a record for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from rules_oracle import F64
from torch import Tensor, nn
from torch.nn.utils import parametrizations


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


TABLE = 5


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
