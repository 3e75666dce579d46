"""Federated averaging by Flower: what 3000 people wrote stays on their devices; a client is one person, and epsilon = 8 is for all of it.

    python examples/recipes/federated_averaging.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[flower]" datasets`; 1.2 million weights, 1 GB, an estimated 4 hours on a GPU for 500 rounds of 100 clients: all
run in this process, one after the other. In a deployment the strategy stands in a `ServerApp`, and the clients' app is as here.
Prints the accuracy on what 500 other people wrote (FEMNIST, 62 characters). No number is published for so few clients.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from arguments import Meter, downloading, parse
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import lethe
from lethe.integrations.flower import PrivateFedAvg

options = parse(__doc__, epsilon=8.0)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
clients, rounds, sampled, clip_norm, rate, batch, classes = 3000, 500, 100, 0.3, 0.1, 20, 62
if options.size == "small":
    clients, rounds, sampled, clip_norm, rate, batch, classes = 280, 20, 140, 1.0, 1.0, 5, 10


def network() -> nn.Module:
    if options.size == "small":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    features = [nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(3136, 360), nn.ReLU(), nn.Linear(360, classes))


if options.size == "real":
    from datasets import load_dataset

    with downloading("FEMNIST"):
        data = load_dataset("flwrlabs/femnist", split="train").with_format("numpy")
    writers = np.unique(data["writer_id"][:], return_inverse=True)[1]
    rows = [np.flatnonzero(writers == writer) for writer in range(clients + 500)]

    def pictures_of(client: int) -> tuple[Tensor, Tensor]:
        """One person's pictures, of numbers from 0 to 1, and which characters they are."""
        chosen = data[rows[client]]
        return torch.tensor(1.0 - chosen["image"][:, None] / 255.0, dtype=torch.float32), torch.tensor(chosen["character"])
elif options.size == "random":

    def pictures_of(client: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(client)
        return torch.rand(227, 1, 28, 28, generator=draw), torch.randint(classes, (227,), generator=draw)
else:
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))

    def pictures_of(client: int) -> tuple[Tensor, Tensor]:
        chosen = order[5 * client : 5 * client + 5] if client < clients else order[5 * clients :]
        return torch.tensor(digits.images[chosen] / 16.0, dtype=torch.float32), torch.tensor(digits.target[chosen])


app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """An epoch of plain SGD on the pictures of one person."""
    model = network().to(device)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    pictures, labels = (tensor.to(device) for tensor in pictures_of(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for chosen in torch.randperm(len(labels), device=device).split(batch):
        cross_entropy(model(pictures[chosen]), labels[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
    content = {"arrays": ArrayRecord(model.cpu().state_dict()), "metrics": MetricRecord({"num-examples": len(labels)})}
    return Message(RecordDict(content), reply_to=message)


class OneProcess:
    """In the place of Flower's network: every client is a call."""

    def __init__(self) -> None:
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what Flower's own processes say of themselves
        self.contexts = {100 + i: Context(1, 100 + i, {"partition-id": i}, RecordDict(), {}) for i in range(clients)}

    def get_node_ids(self) -> Iterable[int]:
        """All that are connected."""
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """The answers."""
        return [app(message, self.contexts[message.metadata.dst_node_id]) for message in messages]


model = network()
meter = Meter(options, model)
tests = [pictures_of(clients + i) for i in range(1 if options.size == "small" else 500)]
pictures, labels = (torch.cat(parts) for parts in zip(*tests, strict=True))


def accuracy(arrays: ArrayRecord) -> float:
    model.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        guesses = [model(some).argmax(1) for some in pictures.split(1000)]
    return float((torch.cat(guesses) == labels).float().mean())


run = lethe.Run(
    records=clients,  # of whom each may connect
    unit="user",
    batches=lethe.batches.Poisson(sampled),
    steps=options.steps or rounds,
    step_size=1.0,
    clip_norm=clip_norm,
    noise_multiplier=0.0,
    release="all",
    neighbours="zero_out",
)
delta = 0.1 / clients
if options.epsilon < math.inf:
    run = lethe.plan(run, epsilon=options.epsilon, delta=delta)
strategy = PrivateFedAvg(run)
result = strategy.start(
    OneProcess(),
    ArrayRecord(model.state_dict()),
    num_rounds=run.total_steps,
    evaluate_fn=lambda i, _: meter(i, run.total_steps) if i else None,
)
certificate = lethe.certify(strategy.record(), delta=delta) if options.epsilon < math.inf else None
meter.report(certificate, rounds, accuracy=accuracy(result.arrays))
