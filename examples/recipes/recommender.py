"""A recommender learns a large table of films from what people liked (MovieLens 25M); a record is a whole person, and epsilon = 8.

    python examples/recipes/recommender.py [--size real|random|small] [--steps N] [--epsilon E]

Needs `pip install "lethe-dp[train]" pandas` and 260 MB from GroupLens; 62 000 films of 64 numbers (16 MB), 6 GB for the rows, an estimated
hour on a GPU or 10 on 8 cores.
Prints how often a film that one of 2000 other people liked is among the ten that are put first, of all films, for what else they liked.
No number is published for a person as the unit.

What is released is the table of films. A person is the mean of the films that they liked, and stays with them: no row of a table is theirs.
"""

import io
import math
import urllib.request
import zipfile

import numpy as np
import torch
from arguments import Meter, downloading, parse
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import lethe
from lethe.train import SparseSelection, TrainOptions, fit

options = parse(__doc__, epsilon=8.0)
draw = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
people, films, width, liked, others, rows, steps, batch, rate = 160_000, 62_424, 64, 50, 63, 8, 1500, 8192, 0.02
if options.size == "small":
    people, films, width, liked, others, rows, steps, batch, rate = 6000, 1001, 16, 8, 31, 4, 100, 600, 0.05


def likings() -> np.ndarray:
    """The films, from 1, that each person liked, padded by 0: (people, liked)."""
    if options.size == "real":
        import pandas

        with downloading("MovieLens 25M"):
            file = urllib.request.urlopen("https://files.grouplens.org/datasets/movielens/ml-25m.zip").read()
        with zipfile.ZipFile(io.BytesIO(file)).open("ml-25m/ratings.csv") as ratings:
            table = pandas.read_csv(ratings, usecols=["userId", "movieId", "rating"]).query("rating >= 4").sample(frac=1.0, random_state=0)
        table["film"] = table["movieId"].factorize()[0] + 1  # its films are public
        chosen = table.groupby("userId").head(liked)
        found = np.zeros((table["userId"].max(), liked), np.int64)
        found[chosen["userId"] - 1, chosen.groupby("userId").cumcount()] = chosen["film"]
        return found[draw.permutation(len(found))]
    tastes = draw.integers(10, size=(people + 2000, 1))  # of ten kinds; of each some films are liked by many
    kind = np.where(draw.random((people + 2000, liked)) < 0.8, tastes, draw.integers(10, size=(people + 2000, liked)))
    of_kind = (films - 1) // 10
    return 1 + kind * of_kind + (of_kind * draw.random((people + 2000, liked)) ** 3).astype(int)


class Films(nn.Module):
    """A table in which people are means of films; scores are products."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(films, width, padding_idx=0)
        nn.init.normal_(self.table.weight, std=width**-0.25)

    def people(self, before: Tensor) -> Tensor:
        """Those who liked the films before (B, m; 0 is padding): (B, width)."""
        return self.table(before).sum(1) / (before > 0).sum(1, keepdim=True).clamp(min=1)

    def forward(self, before: Tensor, candidates: Tensor) -> Tensor:
        """Scores (B, k) of candidates (B, k) for these people."""
        return torch.einsum("bd,bkd->bk", self.people(before), self.table(candidates))


whole = likings()
public, private = torch.from_numpy(whole[:2000]), whole[2000 : 2000 + people]
owners = np.repeat(np.arange(len(private)), rows)
places = np.concatenate([draw.permutation(liked)[:rows] for _ in range(len(private))])  # what each row holds out
history, ahead = private[owners].copy(), private[owners, places]
history[np.arange(len(owners)), places] = 0
candidates = np.concatenate([ahead[:, None], draw.integers(1, films, (len(owners), others))], 1)
data = torch.from_numpy(history), torch.from_numpy(candidates), torch.from_numpy(ahead)


def loss(scores: Tensor, ahead: Tensor) -> Tensor:
    """The film that was held out is the first of the candidates; a row that holds out none counts nothing."""
    return cross_entropy(scores, torch.zeros_like(ahead), reduction="none") * (ahead > 0)


run = lethe.Run(
    records=len(private),
    unit="user",
    batches=lethe.batches.Poisson(batch),
    steps=options.steps or steps,
    step_size=rate,
    clip_norm=0.5,
    noise_multiplier=0.0,
    release="all",
    neighbours="zero_out",
)
delta, selection = 0.1 / len(private), None
if options.epsilon < math.inf:
    run = lethe.plan(run.replace(sparse_selection=0.2), epsilon=options.epsilon, delta=delta)
    count_noise = float(run.noise_multipliers[0]) / math.sqrt(0.2)
    selection = SparseSelection(parameters=("table.weight",), threshold=2.0 * count_noise, share=0.2)
torch.manual_seed(0)
model = Films().to(device)
meter = Meter(options, model)
optimizer = torch.optim.SparseAdam(model.parameters(), lr=rate) if selection else torch.optim.Adam(model.parameters(), lr=rate)
choices = TrainOptions(users=owners, records_per_user=4, sparse_selection=selection, progress=meter)
fitted = fit(model, loss, data, run, optimizer=optimizer, options=choices)
certificate = lethe.certify(fitted, delta=delta) if options.epsilon < math.inf else None
with torch.no_grad():
    before, ahead = public[:, 1:].to(device), public[:, :1].to(device)
    scores = model.people(before) @ model.table.weight.T
    scores[:, 0] = -math.inf
    hits = (scores.scatter(1, before, -math.inf).topk(10).indices == ahead).any(1)[ahead[:, 0] > 0]
meter.report(certificate, steps, hit_rate=float(hits.float().mean()))
