"""A vision transformer learns CIFAR-10 at epsilon = 2: several views of each picture, one clip, and a moving average of the iterates.

    python examples/recipes/vit_cifar10.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[transformers]" datasets`; ViT-B/16, pretrained on ImageNet-21k, all of its 86 million weights on a GPU of 40 GB
(weights, sums and AdamW's state take 2 GB, activations of 64 pictures of 224 x 224 with 4 views the rest) for an estimated hour.
Prints the accuracy on the 10 000 public test pictures. Published, not ours: 96.7 % at epsilon = 1 by BEiT (Bu et al., arXiv:2205.10683);
81.4 % at epsilon = 8 by a Wide-ResNet from scratch (De et al., arXiv:2204.13650).
"""

import contextlib
import math

import torch
from arguments import Meter, downloading, parse
from torch import Tensor
from torch.nn.functional import cross_entropy, interpolate, pad
from transformers import ViTConfig, ViTForImageClassification

import lethe
from lethe.train import TrainOptions, fit

options = parse(__doc__, epsilon=2.0)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
side, shift, steps, batch, rate, views, average, physical = 224, 4, 250, 1000, 1e-3, 4, 0.99, 64
if options.size == "real":
    from datasets import load_dataset

    with downloading("ViT-B/16 and CIFAR-10"):
        data = load_dataset("uoft-cs/cifar10").with_format("torch")
        model = ViTForImageClassification.from_pretrained("google/vit-base-patch16-224-in21k", num_labels=10)
    train, test = ((data[part]["img"][:], data[part]["label"][:]) for part in ("train", "test"))
elif options.size == "random":
    model = ViTForImageClassification(ViTConfig(num_labels=10))
    train, test = ((torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8), torch.randint(10, (n,))) for n in (50_000, 1000))
else:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    side, shift, steps, batch, rate, average, physical = 32, 3, 30, 200, 1e-2, 0.8, 200
    sizes = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 96, "initializer_range": 0.1}
    model = ViTForImageClassification(ViTConfig(image_size=32, patch_size=16, num_labels=10, **sizes))
    digits = load_digits()
    pixels = (
        interpolate(torch.tensor(digits.images[:, None] * 255 / 16), size=(32, 32), mode="bilinear").to(torch.uint8).expand(-1, 3, -1, -1)
    )
    chosen = train_test_split(range(len(pixels)), test_size=400, random_state=0)
    train, test = ((pixels[rows], torch.tensor(digits.target[rows])) for rows in chosen)


def prepared(pictures: Tensor) -> Tensor:
    """From bytes to numbers between -1 and 1, public constants, at the model's size."""
    return interpolate(pictures / 127.5 - 1.0, size=(side, side), mode="bilinear", antialias=side > 32)


class Views(torch.utils.data.Dataset):
    """Pictures that are shifted, and mirrored where that changes no label, at random: each is made of its own record alone."""

    def __init__(self, pictures: Tensor, labels: Tensor) -> None:
        self.pictures, self.labels = pad(pictures, (shift,) * 4), labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = torch.randint(2 * shift + 1, (2,)).tolist()
        picture = prepared(self.pictures[index : index + 1, :, y : y + 32, x : x + 32])[0]
        return (picture.flip(-1) if options.size != "small" and torch.rand(()) < 0.5 else picture), self.labels[index]


def loss(outputs, labels: Tensor) -> Tensor:
    return cross_entropy(outputs.logits.float(), labels, reduction="none")


run = lethe.Run(
    records=len(train[1]),
    batches=lethe.batches.Poisson(batch),
    steps=options.steps or steps,
    step_size=rate,
    clip_norm=1.0,
    noise_multiplier=0.0,
    release="all",
    neighbours="zero_out",
)
if options.epsilon < math.inf:
    run = lethe.plan(run, epsilon=options.epsilon, delta=1e-5)
model.to(device).vit.embeddings.patch_embeddings.requires_grad_(
    options.size == "real"
)  # random ones train no worse frozen: arXiv:2104.02057
meter = Meter(options, model)
optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
with torch.autocast(device, torch.bfloat16) if device == "cuda" else contextlib.nullcontext():
    choices = TrainOptions(views=views, ema=average, physical_size=physical, progress=meter)
    fitted = fit(model, loss, Views(*train), run, optimizer=optimizer, options=choices)
certificate = lethe.certify(fitted, delta=1e-5) if options.epsilon < math.inf else None
model.load_state_dict(fitted.averaged)  # it is made of iterates that may all be seen: the certificate covers it


@torch.no_grad()
def right(pictures: Tensor, labels: Tensor) -> int:
    return int((model(prepared(pictures.to(device))).logits.argmax(1).cpu() == labels).sum())


model.eval()
accuracy = sum(right(*part) for part in zip(*(tensor.split(250) for tensor in test), strict=True)) / len(test[1])
meter.report(certificate, steps, accuracy=accuracy)
