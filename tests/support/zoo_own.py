"""Architectures in plain PyTorch, as people write them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import weight_norm
from torch.utils.checkpoint import checkpoint
from zoo_member import ALONE, Batch, Member, classes, classified, numbers, tokens


class Block(nn.Module):
    """Of a residual network with group normalisation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(2, width) for _ in range(2)])

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.first(self.norms[0](given).relu())
        return given + self.second(self.norms[1](hidden).relu())


def residual() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down, self.scale = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.Parameter(torch.full((width,), 0.1))

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.norm(self.depthwise(given).permute(0, 2, 3, 1))
        return given + (self.scale * self.down(functional.gelu(self.up(hidden)))).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 4, 4), ConvNextBlock(6), ConvNextBlock(6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


class PoolingAttention(nn.Module):
    """Of MViT: queries, keys and values are pooled by convolutions, of heads one under the other, as (B heads, d, H, W)."""

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads, self.side, self.each = heads, side, width // heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.pools = nn.ModuleList([nn.Conv2d(self.each, self.each, 3, stride, 1, groups=self.each, bias=False) for stride in (1, 2, 2)])
        self.norms = nn.ModuleList([nn.LayerNorm(self.each) for _ in range(3)])
        self.rows = nn.Parameter(0.1 * torch.randn(side, self.each))

    def forward(self, given: Tensor) -> Tensor:
        records, positions, width = given.shape
        parts = self.qkv(self.norm(given)).view(records, positions, 3, self.heads, self.each).permute(2, 0, 3, 1, 4).unbind(0)
        query, key, value = (self.pooled(part, place) for place, part in enumerate(parts))
        places = self.rows.repeat_interleave(self.side, 0)
        mixed = functional.scaled_dot_product_attention(query + places, key, value)
        return given + self.out((mixed + query).transpose(1, 2).reshape(records, positions, width))

    def pooled(self, part: Tensor, place: int) -> Tensor:
        picture = part.reshape(-1, self.side, self.side, self.each).permute(0, 3, 1, 2)
        return self.norms[place](self.pools[place](picture).flatten(2).transpose(1, 2).reshape(len(part), self.heads, -1, self.each))


class MultiscaleViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 3)
        self.blocks = nn.ModuleList([PoolingAttention(8, 2, 4) for _ in range(2)])
        self.token = nn.Parameter(torch.randn(1, 16, 8))

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.patches(given).flatten(2).transpose(1, 2) + self.token
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean(1))


class Siamese(nn.Module):
    """Two pictures of a record through one network: as pairs, or all first ones before all second ones."""

    def __init__(self, *, pairs: bool) -> None:
        super().__init__()
        self.network, self.pairs = (
            nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(196, 5)),
            pairs,
        )
        self.head = nn.Linear(5, 3)

    def forward(self, given: Tensor) -> Tensor:
        if self.pairs:
            one, other = self.network(given.flatten(0, 1)).view(len(given), 2, -1).unbind(1)
        else:
            one, other = self.network(torch.cat([given[:, 0], given[:, 1]])).chunk(2)
        return self.head(one * other)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.words, self.cells, self.head = nn.Embedding(31, 6), kind(6, 5, 2, batch_first=True, bidirectional=True), nn.Linear(10, 3)

    def forward(self, given: Tensor) -> Tensor:
        return self.head(self.cells(self.words(given))[0].mean(1))


class CellByCell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(31, 6), nn.LSTMCell(6, 5), nn.Linear(5, 3)

    def forward(self, given: Tensor) -> Tensor:
        words = self.words(given)
        state = (words.new_zeros(len(given), 5), words.new_zeros(len(given), 5))
        for word in words.unbind(1):
            state = self.cell(word, state)
        return self.head(state[0])


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.across, self.within = nn.Conv2d(3, 8, 4, 4), nn.Linear(16, 16), nn.Linear(8, 8)
        self.norms, self.head = nn.ModuleList([nn.LayerNorm(8) for _ in range(2)]), nn.Linear(8, 3)

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.patches(given).flatten(2).mT
        hidden = hidden + self.across(self.norms[0](hidden).mT).mT
        return self.head((hidden + functional.gelu(self.within(self.norms[1](hidden)))).mean(1))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, 2, 1), nn.ConvTranspose2d(8, 4, 2, 2)
        self.head = nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        first = self.down(given).relu()
        return self.head((self.up(self.deep(first).relu()) + first).mean((2, 3)))


class Experts(nn.Module):
    """A mixture of experts, each of which computes its own tokens; one loss more if experts are to be used alike."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.router, self.head = nn.Embedding(31, 6), nn.Linear(6, 3), nn.Linear(6, 3)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)) for _ in range(3)])
        self.shares: list[Tensor] = []

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        flat = self.words(given).flatten(0, 1)
        weights = self.router(flat).softmax(1)
        best, chosen = weights.max(1)
        mixed = torch.zeros_like(flat)
        for place, expert in enumerate(self.experts):
            mine = (chosen == place).nonzero()[:, 0]
            mixed = mixed.index_add(0, mine, expert(flat[mine]) * best[mine, None])
        return self.head((flat + mixed).view(*given.shape, -1).mean(1)), weights.mean(0)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)]), nn.Linear(8, 3)

    def forward(self, given: Tensor) -> Tensor:
        for block in self.blocks:
            given = checkpoint(lambda entry, block=block: torch.tanh(block(entry)), given, use_reentrant=False)
        return self.head(given)


def normed() -> nn.Module:
    return nn.Sequential(
        weight_norm(nn.Conv1d(4, 6, 3, padding=2, dilation=2)), nn.ReLU(), weight_norm(nn.Conv1d(6, 6, 3)), nn.Flatten(), nn.Linear(36, 3)
    )


def contrasted(output: Tensor, targets: Tensor) -> Tensor:
    """InfoNCE: every record against all others of its batch."""
    return (output @ output.roll(1, 1).T).log_softmax(1).diagonal().neg()


def balanced(output: Any, targets: Tensor) -> Tensor:
    logits, shares = output
    return classified(logits, targets) + 0.1 * shares.square().sum()


def pictures() -> Batch:
    return {"input": numbers(3, 16, 16), "targets": classes()}


def given() -> Batch:
    return {"given": numbers(3, 16, 16), "targets": classes()}


def words() -> Batch:
    return {"given": tokens(7), "targets": classes()}


def own(build: Callable[[], nn.Module], batch: Callable[[], Batch], **told: Any) -> Member:
    return Member(build=build, batch=batch, **{"losses": classified, **told})


OWN: dict[str, Member] = {
    "perceptron": own(lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 9), nn.Tanh(), nn.Linear(9, 3)), pictures),
    "ResNet with group normalisation": own(residual, pictures),
    "ResNet with batch normalisation": own(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(784, 3)),
        pictures,
        how="refused",
        why="batch normalisation in training mode mixes records: use nn.GroupNorm, or eval mode",
        refusal="fix_batch_norm",
    ),
    "ConvNeXt block by block": own(convnext, pictures),
    "MViT": own(MultiscaleViT, given),
    "MLP-Mixer": own(Mixer, given),
    "U-Net": own(Unet, given),
    "siamese, as pairs": own(lambda: Siamese(pairs=True), lambda: {"given": numbers(2, 3, 16, 16), "targets": classes()}),
    "siamese, one batch after the other": own(lambda: Siamese(pairs=False), lambda: {"given": numbers(2, 3, 16, 16), "targets": classes()}),
    "LSTM": own(lambda: Recurrent(nn.LSTM), words),
    "GRU": own(lambda: Recurrent(nn.GRU), words),
    "LSTM, cell by cell": own(CellByCell, words),
    "Transformer encoder": own(
        lambda: nn.Sequential(
            nn.Embedding(31, 8),
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), 2),
            nn.Flatten(),
            nn.Linear(56, 3),
        ),
        lambda: {"input": tokens(7), "targets": classes()},
    ),
    "convolutions with weight_norm": own(normed, lambda: {"input": numbers(4, 8), "targets": classes()}),
    "mixture of experts": own(
        Experts, words, losses=lambda output, targets: classified(output[0], targets), how=ALONE, why="each expert picks its tokens"
    ),
    "mixture of experts, balanced": own(
        Experts,
        words,
        losses=balanced,
        how="refused",
        why="the load-balancing loss is one of the whole batch: leave it out",
        refusal="depends on the other records",
    ),
    "contrastive loss": own(
        residual,
        pictures,
        losses=contrasted,
        how="refused",
        why="each loss is made of all records of its batch",
        refusal="depends on the other records",
    ),
    "activation checkpoints": own(Checkpointed, lambda: {"given": numbers(8), "targets": classes()}),
}
