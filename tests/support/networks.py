"""Small networks for the trainer's tests, the recursion written out by hand, record by record, and a loop of one's own around one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from doors import arguments
from helpers import batches as batches_of
from torch import Tensor, nn

from lethe.run.run import Run
from lethe.train import Fitted, PrivacyEngine, fit
from lethe.train.core.samplers import draw_batches

RECORDS, COLUMNS, CLASSES = 23, 4, 3
CROSS_ENTROPY = nn.CrossEntropyLoss(reduction="none")
# The records' users: 9 with 1 to 6 records each, in no order.
USERS, IDS = 9, np.array([8, 3, 3, 0, 1, 2, 3, 4, 8, 5, 6, 7, 0, 3, 3, 1, 8, 5, 3, 2, 4, 8, 0])


def make_data(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(seed)
    return torch.tensor(random.normal(size=(RECORDS, COLUMNS)), dtype=dtype), torch.tensor(random.integers(CLASSES, size=RECORDS))


def make_network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(COLUMNS, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, CLASSES)).to(dtype)


def make_network_run(design: str = "poisson", **changes: Any) -> Run:
    """23 records in batches of 5, 9 steps, clipped at 0.4: most gradients are longer."""
    fields: dict[str, Any] = {
        "records": RECORDS,
        "batches": batches_of(design, 5),
        "steps": 9,
        "step_size": 0.5,
        "clip_norm": 0.4,
        "noise_multiplier": 0.0,
        "release": "all",
        "neighbours": "zero_out",
        **changes,
    }
    if "passes" in changes:
        del fields["steps"]
    return Run(**fields)


def make_users_run(design: str = "poisson", **changes: Any) -> Run:
    """The same in batches of 3 users."""
    return make_network_run(design, **{"records": USERS, "batches": batches_of(design, 3), "unit": "user", **changes})


def fit_network(run: Run, model: nn.Module | None = None, loss: Any = CROSS_ENTROPY, data: Any = None, **options: Any) -> Fitted[Any]:
    """`fit` of the network or another model, with its options flat beside its own arguments."""
    return fit(make_network() if model is None else model, loss, make_data() if data is None else data, run, **arguments(options))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def by_hand(
    model: nn.Sequential,
    data: tuple[Tensor, Tensor],
    run: Run,
    generator: torch.Generator,
    rows_of: Callable[[int, int], Any] | None = None,
) -> Tensor:
    """The noiseless recursion of a Run with ridge and pass averages, one unit at a time, which is a record, or has the rows that `rows_of`
    tells of it and of the step; the parameters it ends at."""
    parameters = list(model.parameters())
    assert run.clip_norm is not None
    averages, passed = run.pass_averages, torch.zeros_like(flat(model))
    ridge = sum(part.strong_convexity for part in run.regularisers)
    for step, batch in enumerate(draw_batches(run, generator)):
        step_size = float(run.step_sizes[step])
        total = torch.zeros_like(flat(model))
        units = range(batch.start, batch.stop) if isinstance(batch, slice) else batch.tolist()
        for unit in units:
            rows = [unit] if rows_of is None else rows_of(unit, step + 1)
            losses = CROSS_ENTROPY(model(data[0][rows]), data[1][rows])
            gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(losses.mean(), parameters)])
            total += gradient * min(1.0, run.clip_norm / max(float(gradient.norm()), 1e-300))
        moved = flat(model) - step_size / run.batch_size * total
        if averages is not None:
            place = step % len(averages)
            passed = (0 if place == 0 else passed) + averages[place] * moved
            moved = passed if place == len(averages) - 1 else moved
        moved = moved / (1 + step_size * ridge)
        with torch.no_grad():
            for parameter, part in zip(parameters, moved.split([parameter.numel() for parameter in parameters]), strict=True):
                parameter.copy_(part.view_as(parameter))
    return flat(model)


Losses = Callable[[Any], Tensor]


def losses_of(model: Any, criterion: Callable[..., Tensor] = CROSS_ENTROPY) -> Losses:
    """The function of a batch (inputs, targets)."""
    return lambda batch: criterion(model(batch[0]), batch[1])


class Loop:
    """An engine with a model, an optimiser and a loader, and one step after another."""

    model: Any

    def __init__(
        self,
        run: Run | None = None,
        *,
        optimizer: Callable[..., Any] | None = None,
        model: Any = None,
        losses: Losses | None = None,
        data: Any = None,
        **options: Any,
    ) -> None:
        self.run = make_network_run(noise_multiplier=1.0) if run is None else run
        self.given = make_network() if model is None else model
        if not options.keys() & {"seed", "secure"}:
            options = {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0), **options}
        self.model = self.given
        self.optimizer = torch.optim.SGD(self.given.parameters(), lr=0.5) if optimizer is None else optimizer(self.given.parameters())
        losses, data = losses_of(self.given) if losses is None else losses, make_data() if data is None else data
        self.engine = PrivacyEngine(self.given, self.optimizer, losses, data, self.run, **arguments(options))
        self.loader = self.engine.batches()

    def use(self, batch: Any) -> None:
        self.engine.backward(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def whole(self) -> Run:
        for batch in self.loader:
            self.use(batch)
        return self.engine.recorded_run()
