"""Federated averaging by Flower: its messages and its loop, and a transport that calls the clients in this process."""

import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor

import lethe
from lethe.certificates.weights import tensors_digest
from lethe.errors import HypothesisError, InputError, LetheWarning
from lethe.integrations.flower import PrivateFedAvg
from lethe.train.network.noise.secure import SecureNoise

CLIP_NORM, MULTIPLIER = 0.5, 2.0
START = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(3, np.float32)}


class Grid:
    """Clients by their node ids; each is a function of the message's arrays to a reply, or to none."""

    def __init__(self, clients: dict[int, Callable[[Message], Message | None]]) -> None:
        self.clients, self.messages = clients, Counter[int]()
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what Flower's own processes do

    def get_node_ids(self) -> Iterable[int]:
        return list(self.clients)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        messages = list(messages)
        self.messages.update(message.metadata.dst_node_id for message in messages)
        replies = [self.clients[message.metadata.dst_node_id](message) for message in messages]
        return [reply for reply in replies if reply is not None]


def sends(arrays: dict[str, np.ndarray], examples: int = 1) -> Callable[[Message], Message]:
    """A client that sends these arrays, whatever it is asked."""
    content = {"arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()})}
    return lambda message: Message(RecordDict({**content, "metrics": MetricRecord({"num-examples": examples})}), reply_to=message)


def moved(by: float | np.ndarray, **others: np.ndarray) -> dict[str, np.ndarray]:
    return {name: array + by for name, array in START.items()} | others


def run_of(records: int, **fields) -> lethe.Run:
    said = {"batches": lethe.batches.Full(), "steps": 1, "step_size": 1.0, "neighbours": "zero_out", "noise_multiplier": MULTIPLIER}
    return lethe.Run(records=records, clip_norm=CLIP_NORM, release="all", unit="user", **said | fields)


def trained(run: lethe.Run, clients: dict, rounds: int = 1) -> tuple[dict[str, np.ndarray], PrivateFedAvg, Grid]:
    grid, strategy = Grid(clients), PrivateFedAvg(run, min_available_nodes=0)
    result = strategy.start(grid, ArrayRecord({name: Array(array) for name, array in START.items()}), num_rounds=rounds)
    return {name: array.numpy() for name, array in result.arrays.items()}, strategy, grid


class Heard(SecureNoise):
    """In the place of the noise: the sum that it is added to, and its deviation."""

    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        (total,) = tensors
        self.total, self.noise_std = total.clone(), noise_std


def heard(run: lethe.Run, clients: dict) -> Heard:
    strategy, noise = PrivateFedAvg(run, min_available_nodes=0), Heard()
    strategy._noise = noise
    strategy.start(Grid(clients), ArrayRecord({name: Array(array) for name, array in START.items()}), num_rounds=1)
    return noise


def test_without_noise_it_is_the_clipped_mean_with_equal_weights() -> None:
    random = np.random.default_rng(0)
    answers = [moved(0.0, weight=random.normal(size=(2, 3)).astype("f"), bias=random.normal(size=3).astype("f")) for _ in range(5)]
    arrays, _, _ = trained(
        run_of(5, noise_multiplier=0.0, step_size=0.5), {10 + i: sends(answer, 10**i) for i, answer in enumerate(answers)}
    )
    updates = [np.concatenate([answer["weight"].ravel(), answer["bias"]]).astype(float) for answer in answers]
    mean = sum(update * min(1.0, CLIP_NORM / np.linalg.norm(update)) for update in updates) / 5
    assert np.concatenate([arrays["weight"].ravel(), arrays["bias"]]) == pytest.approx(0.5 * mean, rel=1e-6)  # of float32
    assert {name: array.dtype for name, array in arrays.items()} == {name: array.dtype for name, array in START.items()}


@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
@pytest.mark.parametrize("size", [1e-3, 0.7, 1e300])
def test_a_client_moves_the_sum_by_what_the_noise_hides(neighbours: str, size: float) -> None:
    """The distance of two neighbouring sums over the noise is at most that of the run, and for long updates no less than .9999 of it."""
    run = run_of(4, neighbours=neighbours)
    others = {node: sends(moved(0.1 * node)) for node in (1, 2, 3)}
    own = np.full(3, size, np.float64)
    here = heard(run, {**others, 4: sends(moved(0.0, bias=own))})
    away = sends(moved(0.0, bias=-own)) if neighbours == "replace_one" else lambda message: None
    away = heard(run, {**others, 4: away})
    assert here.noise_std == away.noise_std
    ratio = float((here.total - away.total).norm()) / here.noise_std
    limit = run.touch_factor / MULTIPLIER
    assert ratio <= limit
    assert ratio >= 0.9999 * limit or size < 0.1


def test_the_noise_is_that_of_the_run() -> None:
    numbers, step_size = 200_000, 0.5
    run = run_of(3, step_size=step_size, batches=lethe.batches.Poisson(2))
    strategy = PrivateFedAvg(run, min_available_nodes=0)
    arrays = ArrayRecord({"weight": Array(np.zeros(numbers))})
    strategy.configure_train(1, arrays, ConfigRecord(), Grid({}))
    after, metrics = strategy.aggregate_train(1, [])
    variance = float(np.mean(after["weight"].numpy() ** 2)) / (step_size * MULTIPLIER * CLIP_NORM / 2) ** 2
    assert metrics is None
    assert variance == pytest.approx(1.0, abs=5 * math.sqrt(2 / numbers))  # .016, and one per cent less noise is .02 less


BROKEN = {
    "nothing": lambda message: None,
    "an error": lambda message: Message(Error(code=0, reason="no memory"), reply_to=message),
    "no arrays": lambda message: Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message),
    "not a number": sends(moved(0.0, bias=np.full(3, np.nan, np.float32))),
    "infinite": sends(moved(0.0, bias=np.full(3, np.inf, np.float32))),
    "another shape": sends(moved(0.0, bias=np.ones(1, np.float32))),
    "turned": sends(moved(0.0, weight=np.ones((3, 2), np.float32))),
    "a name more": sends(moved(0.0, more=np.ones(2, np.float32))),
    "a name less": sends({"weight": np.ones((2, 3), np.float32)}),
    "texts": sends(moved(0.0, bias=np.array(["a", "b", "c"]))),
    "no bytes of arrays": lambda message: Message(
        RecordDict({"arrays": ArrayRecord({name: Array("float32", (3,), "numpy.ndarray", b"broken") for name in START})}), reply_to=message
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_cannot_be_used_adds_nothing_and_the_denominator_stays(broken: str) -> None:
    good = np.float32(0.01)
    arrays, strategy, _ = trained(run_of(4, noise_multiplier=0.0), {1: sends(moved(good)), 2: BROKEN[broken], 3: sends(moved(good))})
    assert arrays["bias"] == pytest.approx(np.full(3, 2 * good / 4), rel=1e-6)
    assert strategy.record().run == strategy.run


def test_a_huge_update_is_clipped() -> None:
    arrays, _, _ = trained(run_of(1, noise_multiplier=0.0), {7: sends(moved(0.0, bias=np.array([3e38, 0, 0], np.float32)))})
    assert arrays["bias"] == pytest.approx([CLIP_NORM, 0, 0], rel=1e-6)


def test_a_client_counts_once_and_one_that_was_not_asked_not_at_all() -> None:
    strategy = PrivateFedAvg(run_of(2, noise_multiplier=0.0), min_available_nodes=0)
    start = ArrayRecord({name: Array(array) for name, array in START.items()})
    first, second = strategy.configure_train(1, start, ConfigRecord({"lr": 0.1}), Grid({1: None, 2: None}))
    assert dict(first.content.config_records["config"]) == {"lr": 0.1, "server-round": 1}
    stranger = Message(first.content, dst_node_id=99, message_type="train")
    answer = sends(moved(0.01))
    after, _ = strategy.aggregate_train(1, [answer(first), answer(first), answer(stranger), answer(second), answer(second)])
    assert after["bias"].numpy() == pytest.approx(np.full(3, 0.01), rel=1e-6)


def test_a_round_without_answers_adds_noise_and_says_so() -> None:
    with pytest.warns(LetheWarning, match="none of 2 clients"):
        arrays, strategy, _ = trained(run_of(2), {1: BROKEN["an error"], 2: BROKEN["nothing"]})
    assert all(np.abs(array).min() > 0 for array in arrays.values())
    assert lethe.certify(strategy.record(), delta=1e-5).epsilon == lethe.certify(strategy.run, delta=1e-5).epsilon


def test_clients_are_drawn_as_the_run_says() -> None:
    """20 clients of 40 are connected; each is asked in a quarter of 400 rounds, within 5 deviations, and others are never waited for."""
    run = run_of(40, batches=lethe.batches.Poisson(10), steps=400)
    _, strategy, grid = trained(run, {node: sends(moved(0.0)) for node in range(100, 120)}, rounds=400)
    counts = np.array([grid.messages[node] for node in range(100, 120)])
    assert len(set(counts)) > 1
    assert np.abs(counts - 100).max() <= 5 * math.sqrt(400 * 0.25 * 0.75)
    assert strategy.record().run == run


def test_a_client_that_stays_away_leaves_the_law_of_the_others_places() -> None:
    """Of 300 trainings in a public order each client is in each round as often, within 5 deviations, whoever else connected."""
    run = run_of(4, batches=lethe.batches.Cyclic(1), steps=4)

    def rounds_of(nodes: Iterable[int]) -> Counter[int]:
        """In which rounds client 12 is asked, who connects between the others."""
        grid, asked = Grid({node: sends(moved(0.0)) for node in sorted({12, *nodes})}), Counter[int]()
        for _ in range(300):
            strategy = PrivateFedAvg(run, min_available_nodes=0)
            arrays = ArrayRecord({name: Array(array) for name, array in START.items()})
            for server_round in range(4):
                messages = list(strategy.configure_train(server_round, arrays, ConfigRecord({}), grid))
                asked[server_round] += sum(message.metadata.dst_node_id == 12 for message in messages)
                strategy.aggregate_train(server_round, grid.send_and_receive(messages))
        return asked

    for nodes in ((10, 11, 13), (11, 13), ()):
        assert max(abs(count - 75) for count in rounds_of(nodes).values()) <= 5 * math.sqrt(300 * 0.25 * 0.75)


def test_every_epoch_asks_each_client_once() -> None:
    _, _, grid = trained(
        run_of(6, batches=lethe.batches.RandomAllocation(2), steps=6), {node: sends(moved(0.0)) for node in range(6)}, rounds=6
    )
    assert set(grid.messages.values()) == {2}


def test_the_certificate_is_of_the_arrays_and_the_run() -> None:
    run = lethe.plan(
        run_of(50, batches=lethe.batches.Poisson(10), steps=5, noise_multiplier=None, neighbours="zero_out"), epsilon=2.0, delta=1e-3
    )
    arrays, strategy, _ = trained(run, {node: sends(moved(0.1)) for node in range(50)}, rounds=5)
    record = strategy.record()
    certificate = lethe.certify(record, delta=1e-3)
    assert certificate.epsilon == lethe.certify(run, delta=1e-3).epsilon <= 2.0
    assert record.released[0].sha256 == tensors_digest({name: torch.from_numpy(array).numpy() for name, array in arrays.items()})
    said = certificate.explain()
    assert "one user" in said
    assert "which has one node id throughout" in said
    assert "fresh" in said


def test_fewer_rounds_are_certified_as_all_unless_their_number_was_fixed() -> None:
    run = run_of(3, steps=10)
    _, strategy, _ = trained(run, {node: sends(moved(0.1)) for node in range(3)}, rounds=4)
    assert strategy.record().run == run
    assert strategy.record(steps_fixed_in_advance=True).run.total_steps == 4


def test_clients_evaluate_nothing() -> None:
    strategy = PrivateFedAvg(run_of(3))
    assert list(strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), Grid({1: None}))) == []
    assert strategy.aggregate_evaluate(1, []) is None


REFUSED = {
    "unit": ({"unit": "record"}, "federated averaging needs 'user'"),
    "release": ({"release": "last"}, "federated averaging needs 'all'"),
    "noise_multiplier": ({"noise_multiplier": None}, "federated averaging needs 'noise'"),
    "clip_method": ({"clip_method": "normalise"}, "federated averaging needs 'clip'"),
    "seeded": ({"seeded": True}, "federated averaging needs False"),
    "loss": ({"loss": lethe.losses.Convex(smoothness=1.0)}, "federated averaging needs"),
    "clip_groups": ({"clip_groups": (0.3, 0.3)}, "federated averaging needs None"),
    "too little noise": ({"records": 2**20, "noise_multiplier": 0.1}, "sums on its grid need 0.125"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_runs_that_say_more_are_refused(name: str) -> None:
    fields, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        PrivateFedAvg(run_of(8).replace(**fields))


def test_rounds_are_configured_and_aggregated_in_turn() -> None:
    strategy, grid = PrivateFedAvg(run_of(1, noise_multiplier=0.0), min_available_nodes=0), Grid({1: sends(moved(0.1))})
    start = ArrayRecord({name: Array(array) for name, array in START.items()})
    with pytest.raises(HypothesisError, match="no step was executed"):
        strategy.record()
    with pytest.raises(InputError, match="was not configured, or was aggregated"):
        strategy.aggregate_train(1, [])
    with pytest.raises(InputError, match="'count' is int64; it needs floating-point"):
        strategy.configure_train(1, ArrayRecord({"count": Array(np.zeros(1, np.int64))}), ConfigRecord(), grid)
    (message,) = strategy.configure_train(1, start, ConfigRecord(), grid)
    with pytest.raises(InputError, match="the last one was not aggregated"):
        strategy.configure_train(2, start, ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive([message]))
    with pytest.raises(InputError, match="was not configured, or was aggregated"):
        strategy.aggregate_train(1, [])
    with pytest.raises(InputError, match="the run has 1 steps"):
        strategy.configure_train(2, start, ConfigRecord(), grid)


@pytest.mark.parametrize("nodes", [-1, math.nan, "two", None])
def test_a_number_of_nodes_is_asked_for(nodes: object) -> None:
    with pytest.raises(InputError, match="min_available_nodes"):
        PrivateFedAvg(run_of(2), min_available_nodes=nodes)  # pyright: ignore[reportArgumentType]


def test_more_clients_than_the_run_has_are_refused() -> None:
    with pytest.raises(InputError, match="clients: 3 have connected; the run has 2"):
        trained(run_of(2), {node: sends(moved(0.1)) for node in range(3)})
