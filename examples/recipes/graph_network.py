"""A graph network learns which molecules act against lung cancer cells (NCI1); a record is a whole graph, and epsilon = 8.

    python examples/recipes/graph_network.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[train]"`, and for the real data `torch_geometric`, which only reads them; 36 000 weights, 1 GB, an estimated
20 minutes on a CPU or 5 on a GPU.
Prints the accuracy on a tenth of the graphs, taken as public. Published without privacy, not ours: 82.7 % (Xu et al., arXiv:1810.00826).

Graphs are padded to a size that is public, and nodes that are padding are masked, so that a graph alone and one in a batch give the same
numbers. Where all records are nodes of one graph, no record stands apart from the others, and this is not the recipe.
"""

import math

import torch
from arguments import Meter, downloading, parse
from torch import Tensor, nn

import lethe
from lethe.train import TrainOptions, fit

options = parse(__doc__, epsilon=8.0)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
most_nodes, kinds, width, layers, steps, batch, rate = 112, 37, 64, 4, 400, 512, 1e-3  # kinds of atoms
if options.size == "small":
    most_nodes, kinds, width, layers, steps, batch, rate = 14, 4, 16, 1, 100, 500, 2e-2


def made_up(graphs: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random trees; of class 1 are those with two atoms of kind 0 bound. Edges (n, nodes, nodes), atoms (n, nodes; -1 is padding)."""
    draw = torch.Generator().manual_seed(seed)
    edges, atoms = torch.zeros(graphs, most_nodes, most_nodes), torch.randint(kinds, (graphs, most_nodes), generator=draw)
    sizes = torch.randint(most_nodes // 2, most_nodes, (graphs,), generator=draw)
    for node in range(1, most_nodes):
        parents = (torch.rand(graphs, generator=draw) * node).long()
        edges[range(graphs), node, parents] = (node < sizes).float()
    edges += edges.transpose(1, 2).clone()
    zeros = (atoms == 0).float()
    labels = (torch.einsum("ni,nij,nj->n", zeros, edges, zeros) > 0).long()
    atoms[torch.arange(most_nodes) >= sizes[:, None]] = -1
    return edges, atoms, labels


if options.size == "real":
    with downloading("NCI1"):
        from torch_geometric.datasets import TUDataset
        from torch_geometric.utils import to_dense_adj

        molecules = TUDataset("data", "NCI1").shuffle()
    edges = torch.cat([to_dense_adj(graph.edge_index, max_num_nodes=most_nodes) for graph in molecules])
    atoms = torch.stack([nn.functional.pad(graph.x.argmax(1), (0, most_nodes - len(graph.x)), value=-1) for graph in molecules])
    data = edges, atoms, torch.cat([graph.y for graph in molecules])
else:
    data = made_up(4110 if options.size == "random" else 5000, seed=0)
test, train = ([part[rows] for part in data] for rows in (slice(len(data[2]) // 10), slice(len(data[2]) // 10, None)))


class GraphNetwork(nn.Module):
    """Messages are sums over neighbours, through two layers (GIN), with layer normalisation; a graph is the mean of its nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms = nn.Embedding(kinds + 1, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)) for _ in range(layers))
        self.head = nn.Linear(width, 2)

    def forward(self, edges: Tensor, atoms: Tensor) -> Tensor:
        """Scores (B, 2) of the classes."""
        mask = (atoms >= 0).unsqueeze(-1)
        nodes = self.atoms(atoms + 1)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            messages = torch.where(mask, nodes, 0.0)
            nodes = nodes + layer(norm(messages + edges @ messages))
        return self.head(torch.where(mask, nodes, 0.0).sum(1) / mask.sum(1))


run = lethe.Run(
    records=len(train[2]),
    batches=lethe.batches.Poisson(batch),
    steps=options.steps or steps,
    step_size=rate,
    clip_norm=0.3,
    noise_multiplier=0.0,
    release="all",
    neighbours="zero_out",
)
delta = 0.1 / len(train[2])
if options.epsilon < math.inf:
    run = lethe.plan(run, epsilon=options.epsilon, delta=delta)
model = GraphNetwork().to(device)
meter = Meter(options, model)
optimizer = torch.optim.Adam(model.parameters(), lr=rate)
fitted = fit(model, nn.CrossEntropyLoss(), train, run, optimizer=optimizer, options=TrainOptions(ema=0.95, progress=meter))
certificate = lethe.certify(fitted, delta=delta) if options.epsilon < math.inf else None
model.load_state_dict(fitted.averaged)
with torch.no_grad():
    guesses = model(*(part.to(device) for part in test[:2])).argmax(1).cpu()
meter.report(certificate, steps, accuracy=float((guesses == test[2]).float().mean()))
