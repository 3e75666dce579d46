"""Whole models, against single records."""

import pytest
import torch
from per_record import assert_clips_like_single_records, squares
from torch import Tensor, nn
from torch.nn import functional

from lethe.train.clipping import Clipper


class Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.GroupNorm(2, out)
        self.second, self.second_norm = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.GroupNorm(2, out)
        self.short = nn.Identity() if stride == 1 else nn.Conv2d(channels, out, 1, stride)

    def forward(self, given: Tensor) -> Tensor:
        hidden = functional.relu(self.first_norm(self.first(given)), inplace=True)
        hidden = self.second_norm(self.second(hidden))
        hidden += self.short(given)
        return hidden.relu_()


def small_resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        Block(4, 4, 1),
        Block(4, 8, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


class VisionTransformer(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True) for _ in range(2))
        self.scale, self.head = nn.Parameter(torch.rand(8)), nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.patches(images).flatten(2).transpose(1, 2)
        hidden = self.drop(torch.cat([self.token.expand(len(images), -1, -1), hidden], dim=1) + self.places)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden[:, 0] * self.scale)


class LanguageModel(nn.Module):
    """Positions looked up once for all records, a table tied to the head, and a triangle of masked attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(7, 6), nn.Embedding(9, 6)
        self.attention, self.norm = nn.MultiheadAttention(6, 2, batch_first=True), nn.LayerNorm(6)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        hidden = self.words(tokens) + self.places(torch.arange(length))
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        normed = self.norm(hidden)
        mixed, _ = self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)
        return self.head(hidden + mixed)


class Adapted(nn.Module):
    """A frozen layer with a trained low-rank correction."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, layer.in_features))
        self.up = nn.Linear(2, layer.out_features, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given) + self.up(given @ self.down.T)


def adapted_transformer() -> nn.Module:
    model = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    model.requires_grad_(False)
    model.linear1 = Adapted(model.linear1)  # pyright: ignore[reportAttributeAccessIssue]
    model.linear2 = Adapted(model.linear2)  # pyright: ignore[reportAttributeAccessIssue]
    model.norm2.requires_grad_(True)
    return model


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cells, self.head = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        output, (last, _) = self.cells(self.words(tokens))
        return self.head(output.mean(1) + last[-1])


IMAGES = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(7, (5, 4), generator=torch.Generator().manual_seed(1))
SEQUENCES = torch.randn(5, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

MODELS = {
    "small resnet": (small_resnet, IMAGES),
    "vision transformer": (VisionTransformer, IMAGES),
    "language model": (LanguageModel, TOKENS),
    "adapted transformer": (adapted_transformer, SEQUENCES),
    "recurrent": (Recurrent, TOKENS),
}


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_clip_like_single_records(name: str) -> None:
    torch.manual_seed(0)
    build, batch = MODELS[name]
    assert assert_clips_like_single_records(build().double(), batch).verified == "checked"


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["small resnet", "vision transformer"])
def test_models_in_float32(name: str) -> None:
    torch.manual_seed(0)
    build, batch = MODELS[name]
    assert_clips_like_single_records(build(), batch.float())


@pytest.mark.slow
def test_dropout_masks_are_those_of_the_forward_pass() -> None:
    """With the same seed, the sums over a batch are those that plain autograd gives on the batch's own graph."""
    torch.manual_seed(0)
    model = VisionTransformer(dropout=0.3).double()
    for clipper in (Clipper(model, clip_norm=1e9), Clipper(model, clip_norm=1e9, verify=False)):
        torch.manual_seed(5)
        with clipper.recording():
            output = model(IMAGES)
        clipper.backward(squares(output))
        torch.manual_seed(5)
        parameters = list(model.parameters())
        plain = torch.autograd.grad(squares(model(IMAGES)).sum(), parameters)
        sums = clipper.take()
        for parameter, gradient in zip(parameters, plain, strict=True):
            assert torch.allclose(sums[parameter], gradient, rtol=1e-9, atol=1e-9)
