"""Federated averaging by Flower with clients as the users of a certificate. Users pass the strategy to Flower's `ServerApp`, which calls
`configure_train` and `aggregate_train` each round; the latter clips each client's update and adds noise to the sum.

strategy = PrivateFedAvg(run)  # records: clients, batches: clients of a round, steps: rounds, step_size: the server's learning rate
result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=run.total_steps)
print(lethe.certify(strategy.record(), delta=1e-5).explain())
"""

from __future__ import annotations

import importlib.util
import logging
import math
import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lethe.errors import InputError, LetheError, LetheWarning, MissingExtraError

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("flwr") is None:
    raise MissingExtraError(
        "lethe.integrations.flower needs Flower and PyTorch, which are not all installed.", remedy='pip install "lethe-dp[flower]"'
    )

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from lethe.calculus.domains import require_count
from lethe.certificates.findings import TRAIN
from lethe.certificates.records import HypothesisClaim, Released, TrainingRecord
from lethe.certificates.weights import tensors_digest
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.clip.sum_error import largest_batch
from lethe.train.core.generators import fresh_generator
from lethe.train.core.iterates import onto_ball
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.network.noise.secure import RESOLUTION, SecureNoise, grid_noise_std, grid_spacing, least_move

__all__ = ["PrivateFedAvg"]

Arrays = Mapping[str, np.ndarray[Any, Any]]

_UNDERSTOOD = ("records", "batches", "passes", "steps", "step_size", "clip_norm", "noise_multiplier", "neighbours")
_SMALLEST = 2.0 ** (RESOLUTION + 1 - 52)
"""Of the noise multiplier over the records of a batch: sums are then below 2^52 steps of the grid, and exact."""
_DECLARED = (
    HypothesisClaim("start", "the initial arrays depend on the clients' data only through another certified training"),
    HypothesisClaim("users", "all data of a person are at one client, which has one node id throughout, and no other person's are"),
    HypothesisClaim("server", "nobody but the server learns which clients a round asks, or sees what they send"),
    HypothesisClaim("metrics", "what clients log, and what evaluate_fn makes of their data, is never published"),
)


class _Round(NamedTuple):
    """A round under way: the arrays that were sent, the batch, and the nodes whose answers are awaited."""

    arrays: Arrays
    batch: Batch
    awaited: set[int]


class PrivateFedAvg(Strategy):
    r"""A strategy for Flower's `ServerApp`. Of the clients $B_t$ that round t asks, which answer with arrays $y_u$,

    $$x_t = x_{t-1} + \frac{\lambda_t}{b}\Big(\sum_{u\in B_t}\mathrm{Clip}_C(y_u - x_{t-1}) + \zeta_t\Big),
    \qquad \zeta_t \sim N(0, z_t^2C^2I).$$

    One clip for all arrays together, in float64. The noise is `SecureNoise`; clipped updates are rounded to its grid one by one, so that
    their sum is exact. Weights are equal and b is the run's: how many examples a client has, and who failed, is private. A client that
    fails, or sends arrays that are not finite or of other names or shapes, adds nothing; a round without answers adds noise all the same.
    A node that connects for the first time gets a free place among the `records` by chance, so that the others' places do not say who
    stayed away; a round draws from all places, taken or not. Clients evaluate nothing and their
    metrics are dropped, since no noise covers them.

    Args:
        run: of unit "user", release "all" and with noise; `records` are the clients that may ever connect, step_size is $\lambda_t$.
        min_available_nodes: the first round waits for so many.
    Raises:
        InputError: a run that says more than this strategy carries out; later, more nodes than the run has clients, more rounds than steps,
            arrays that are no floating-point numbers, or a round that is not the one under way.
    Reference: McMahan et al. 2018, "Learning differentially private recurrent language models", arXiv:1710.06963, with a fixed denominator.
    """

    def __init__(self, run: Run, *, min_available_nodes: int = 2) -> None:
        self.run = _carried_out(run)
        self.min_available_nodes = require_count("min_available_nodes", min_available_nodes, low=0)
        self._recorder, self._noise = Recorder(run, seeded=False), SecureNoise()
        self._batches = draw_batches(run, fresh_generator(torch.device("cpu")))
        self._clients: dict[int, int] = {}  # places by node id
        self._free: list[int] = torch.randperm(run.records, generator=fresh_generator(torch.device("cpu"))).tolist()
        self._round: _Round | None = None
        self._released: Arrays = {}

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """One message to each client of the round that is connected."""
        if self._round is not None or self._recorder.steps == self.run.total_steps:
            what = "the last one was not aggregated" if self._round is not None else f"the run has {self.run.total_steps} steps"
            raise InputError(f"round {server_round}: {what}.", remedy="num_rounds=run.total_steps, and one aggregate_train a round.")
        while len(nodes := sorted(grid.get_node_ids())) < self.min_available_nodes and not self._clients:
            time.sleep(1.0)
        new = [node for node in nodes if node not in self._clients]
        if len(new) > len(self._free):
            remedy = "plan for as many clients as may ever connect; one that comes again under another id counts twice."
            raise InputError(f"clients: {len(self._clients) + len(new)} have connected; the run has {self.run.records}.", remedy=remedy)
        self._clients.update((node, self._free.pop()) for node in new)
        sent = {name: array.numpy() for name, array in arrays.items()}
        if strange := [name for name, array in sent.items() if array.dtype.kind != "f"]:
            remedy = "send parameters alone, and count batches elsewhere."
            raise InputError(f"arrays: {strange[0]!r} is {sent[strange[0]].dtype}; it needs floating-point numbers.", remedy=remedy)
        batch = next(self._batches)
        drawn = set(torch.arange(self.run.records)[batch].tolist())
        self._round = _Round(sent, batch, {node for node in nodes if self._clients[node] in drawn})
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "server-round": server_round})})
        return [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in sorted(self._round.awaited)]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, None]:
        """The arrays after the round, whoever answered."""
        if self._round is None:
            raise InputError(f"round {server_round}: it was not configured, or was aggregated.", remedy="call configure_train first.")
        (before, batch, awaited), self._round = self._round, None
        start, step = _flat(before), self._recorder.steps
        noise_std, step_size = float(self.run.noise_multipliers[step]) * self.run.clip_bound, float(self.run.step_sizes[step])
        self._recorder.note(step_size=step_size, noise_std=float(self.run.noise_stds[step]), batch=batch)
        wider = grid_noise_std(noise_std, least_move(self.run), start.numel()) if noise_std else 0.0
        spacing = grid_spacing(wider) if wider else 0.0
        total, expected, used = torch.zeros_like(start), len(awaited), 0
        for reply in replies:
            node = reply.metadata.src_node_id
            if node in awaited and (update := _update(reply, before, start)) is not None:
                awaited.discard(node)  # a client counts once
                clipped = onto_ball(update[None], self.run.clip_bound)[0][0]
                total += (clipped / spacing).round_() * spacing if spacing else clipped
                used += 1
        if expected and not used:
            warnings.warn(LetheWarning(f"round {server_round}: none of {expected} clients sent arrays that could be used."), stacklevel=2)
        self._noise.add_to([total], wider)
        after = start + total * (step_size / self.run.batch_size)
        if not bool(torch.isfinite(after).all()):
            raise LetheError("training overflowed: the arrays are not finite.", remedy="take a smaller step size or less noise.")
        self._released, first = {}, 0
        for name, array in before.items():
            self._released[name] = after[first : first + array.size].numpy().reshape(array.shape).astype(array.dtype)
            first += array.size
        return ArrayRecord({name: Array(array) for name, array in self._released.items()}), None

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """No messages."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Log what is carried out."""
        run = self.run
        logging.getLogger("flwr").info("\t├──> %d clients, about %d a round, clip norm %g", run.records, run.batch_size, run.clip_bound)

    def record(self, *, steps_fixed_in_advance: bool = False) -> TrainingRecord:
        """The training record, for `lethe.certify`: of the whole plan where rounds are left, unless their number was fixed in advance.

        Args, Raises: as of `lethe.train.PrivacyEngine.recorded_run`.
        """
        whole = not steps_fixed_in_advance and self._recorder.steps < self.run.total_steps
        recorded = self._recorder.run(self.run, enforced=False, whole=whole)
        released = (Released("model", tensors_digest(self._released)),)
        return TrainingRecord(run=recorded, by=TRAIN, declared=_DECLARED, released=released)


def _carried_out(run: Run) -> Run:
    """The run, if its clipping, noise and release are those of this strategy."""
    plain = Run(**{name: getattr(require_run(run), name) for name in _UNDERSTOOD}, release="all", unit="user")
    different = [name for name in Run.model_fields if getattr(run, name) != getattr(plain, name)]
    if different or run.noise_multiplier is None:
        name = different[0] if different else "noise_multiplier"
        raise InputError(
            f"{name}: got {getattr(run, name)!r}; federated averaging needs {getattr(plain, name) if different else 'noise'!r}.",
            source=f"run.{name}",
            remedy="lethe.plan(lethe.Run(..., clip_norm=1.0, release='all', unit='user'), epsilon=3.0, delta=1e-5).",
        )
    smallest, needed = min(filter(None, run.noise_multipliers), default=math.inf), largest_batch(run) * _SMALLEST
    if smallest < needed:
        raise InputError(f"noise_multiplier: got {smallest:.3g}; sums on its grid need {needed:.3g}.", remedy="plan more noise, or 0.")
    return run


def _flat(arrays: Arrays) -> Tensor:
    """All numbers in float64, shape (d,)."""
    return torch.from_numpy(np.concatenate([array.astype(np.float64).reshape(-1) for array in arrays.values()]))


def _update(reply: Message, before: Arrays, start: Tensor) -> Tensor | None:
    """What a client's arrays add to those that were sent, shape (d,); None where they are not finite numbers of these names and shapes."""
    try:
        (record,) = reply.content.array_records.values()
        answer = {name: array.numpy() for name, array in record.items()}
        alike = {name: array.shape for name, array in answer.items()} == {name: array.shape for name, array in before.items()}
        update = _flat({name: answer[name] for name in before}) - start
    except Exception:  # an error in the place of arrays, or anything else that a client may send
        return None
    return update if alike and bool(torch.isfinite(update).all()) else None
