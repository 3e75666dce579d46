"""A small diffusion model draws digits like those of people whom nobody shall recognise in them (MNIST), at epsilon = 10.

    python examples/recipes/diffusion.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[train]" datasets`; a U-Net of 0.7 million weights, 6 GB on a GPU for an estimated 5 hours: 32 noise levels of
each picture a step, one clip (Dockhorn et al. 2023, arXiv:2210.09929).
Prints the accuracy on public digits of a classifier that was trained on 2000 drawn ones. Published, not ours: 98.1 % with a convolutional
classifier, at epsilon = 10.
"""

import math

import torch
from arguments import Meter, downloading, parse
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import one_hot, silu

import lethe
from lethe.train import TrainOptions, fit

options = parse(__doc__, epsilon=10.0)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
side, steps, batch, rate, views, average, physical, spread = (
    28,
    3000,
    4096,
    3e-3,
    32,
    0.999,
    64,
    0.6,
)  # of pixels from -1 to 1: a public guess
if options.size == "real":
    from datasets import load_dataset

    with downloading("MNIST"):
        data = load_dataset("ylecun/mnist").with_format("torch")
    (train, labels), test = ((data[part]["image"][:].reshape(-1, 784) / 127.5 - 1.0, data[part]["label"][:]) for part in ("train", "test"))
elif options.size == "random":
    train, labels, test = (
        torch.rand(60_000, 784) * 2 - 1,
        torch.randint(10, (60_000,)),
        (torch.rand(500, 784) * 2 - 1, torch.arange(500) % 10),
    )
else:
    from sklearn.datasets import load_digits

    side, steps, batch, rate, views, average, physical = 8, 200, 1400, 1e-2, 4, 0.8, 1400
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    pixels, numbers = torch.tensor(digits.data / 8.0 - 1.0, dtype=torch.float32)[order], torch.tensor(digits.target)[order]
    train, labels, test = pixels[:1400], numbers[:1400], (pixels[1400:], numbers[1400:])


class Perceptron(nn.Module):
    """For pictures of 8 x 8."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64 + 18, width), nn.Linear(width, width), nn.Linear(width, 64)
        nn.init.zeros_(self.last.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """From pixels, and after them what is known (B, 64 + 18), to pixels."""
        hidden = silu(self.first(inputs))
        return self.last(hidden + silu(self.second(hidden)))


class UNet(nn.Module):
    """For pictures of 28 x 28: three sizes, on the way down and up again; what else is known, 18 numbers, is added to every channel."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        sizes = [(1, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
        self.down = nn.ModuleList(nn.Conv2d(i, o, 3, stride, 1) for i, o, stride in sizes)
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 4, 2, 1) for i, o in ((4 * width, 2 * width), (4 * width, width)))
        self.known = nn.ModuleList(nn.Linear(18, o) for o in (width, 2 * width, 4 * width, 2 * width, width))
        self.norms = nn.ModuleList(nn.GroupNorm(8, o) for o in (width, 2 * width, 4 * width, 2 * width, width))
        self.last = nn.Conv2d(2 * width, 1, 3, 1, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """From pixels, and after them what is known (B, 784 + 18), to pixels."""
        hidden, known, levels = inputs[:, :-18].reshape(-1, 1, side, side), inputs[:, -18:], []
        for i, layer in enumerate([*self.down, *self.up]):
            hidden = silu(self.norms[i](layer(hidden)) + self.known[i](known)[:, :, None, None])
            levels.append(hidden)
            if i >= 3:
                hidden = torch.cat([hidden, levels[4 - i]], 1)
        return self.last(hidden).flatten(1)


class Denoiser(nn.Module):
    r"""$D(x; \sigma) = c_{skip}x + c_{out}F(c_{in}x, \log\sigma, label)$ (Karras et al. 2022, arXiv:2206.00364)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, normals: Tensor, pictures: Tensor, labels: Tensor) -> Tensor:
        """How far it is off where noise is added to pictures (B, d), in units of the loss; normals (B, d + 1): the noise and its level."""
        sigma = torch.exp(0.3 + 1.2 * normals[:, :1])
        noisy = pictures + sigma * normals[:, 1:]
        return (self.denoised(noisy, sigma, labels) - pictures) * (sigma**2 + spread**2).sqrt() / (sigma * spread)

    def denoised(self, noisy: Tensor, sigma: Tensor, labels: Tensor) -> Tensor:
        """The pictures (B, d) in those to which noise of deviation sigma (B, 1) was added, of these labels (B)."""
        waves = sigma.log() / 4 * math.pi / 2 * torch.arange(1, 5, device=sigma.device)
        known = torch.cat([waves.sin(), waves.cos(), one_hot(labels, 10)], 1)
        total = sigma**2 + spread**2
        return spread**2 / total * noisy + sigma * spread / total.sqrt() * self.network(torch.cat([noisy / total.sqrt(), known], 1))

    @torch.no_grad()
    def draw(self, labels: Tensor, levels: int = 40) -> Tensor:
        """Pictures (n, d) of these labels: noise, of which a little is taken away at each level."""
        sigmas = torch.linspace(5.0**0.2, 0.02**0.2, levels, device=labels.device) ** 5
        pictures = sigmas[0] * torch.randn(len(labels), side**2, device=labels.device)
        for sigma, after in zip(sigmas, [*sigmas[1:], 0.0], strict=True):
            clean = self.denoised(pictures, sigma.expand(len(labels), 1), labels)
            pictures = clean + (pictures - clean) * after / sigma
        return pictures.clamp(-1, 1)


class Views(torch.utils.data.Dataset):
    """Every read of a picture draws its noise, and how strong it is."""

    def __init__(self) -> None:
        self.pictures, self.labels = train.unbind(), labels.unbind()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"normals": torch.randn(side**2 + 1), "pictures": self.pictures[index], "labels": self.labels[index]}


model = Denoiser(Perceptron() if options.size == "small" else UNet()).to(device)
run = lethe.Run(
    records=len(train),
    batches=lethe.batches.Full() if batch == len(train) else lethe.batches.Poisson(batch),
    steps=options.steps or steps,
    step_size=rate,
    clip_norm=0.1,
    noise_multiplier=0.0,
    release="all",
    neighbours="zero_out",
)
if options.epsilon < math.inf:
    run = lethe.plan(run, epsilon=options.epsilon, delta=1e-5)
meter = Meter(options, model)
optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99))
choices = TrainOptions(views=views, ema=average, physical_size=physical, progress=meter)
fitted = fit(model, lambda errors, batch: errors.square().mean(1), Views(), run, optimizer=optimizer, options=choices)
certificate = lethe.certify(fitted, delta=1e-5) if options.epsilon < math.inf else None
model.load_state_dict(fitted.averaged)
wanted = torch.arange(2000, device=device) % 10
drawn = torch.cat([model.draw(some) for some in wanted.split(200)]).cpu()
classifier = LogisticRegression(max_iter=500).fit(drawn.numpy(), wanted.cpu().numpy())
meter.report(certificate, steps, accuracy=classifier.score(test[0].numpy(), test[1].numpy()))
