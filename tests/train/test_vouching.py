"""What every way to train vouches for and declares, in short lines, of the weights that it released."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_head, fit_linear
from networks import Loop
from torch import nn

import lethe
from lethe.accounting.recheck import recheck
from lethe.accounting.verify import Verification
from lethe.train import Callback, fit
from lethe.train.core.training_records import network_record
from lethe.train.data.map_style import MapStyleSource

DELTA = 1e-3
RECORDS, MOST_WORDS = 40, 15
ROWS = np.random.default_rng(0).normal(size=(RECORDS, 3)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
USERS = np.arange(RECORDS) // 2
NETWORK = {"start", "model", "memory", "loss", "constants"}


class Private(Callback):
    private = True


def run_of(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"records": RECORDS, "batches": lethe.batches.Poisson(6), "steps": 2, "step_size": 0.1, "clip_norm": 1.0}
    return lethe.Run(**{**fields, "noise_multiplier": 5.0, "release": "all", **changes})


def last_run(**changes: Any) -> lethe.Run:
    loss = lethe.losses.Softmax(feature_norm=1.0)
    return run_of(**{"batches": lethe.batches.Cyclic(8), "steps": 20, "release": "last", "clip_norm": None, "loss": loss, **changes})


def trained(run: lethe.Run | None = None, data: Any = (ROWS, LABELS), adam: bool = False, **options: Any) -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    own = {"optimizer": torch.optim.AdamW(model.parameters())} if adam else {}
    return fit(model, nn.CrossEntropyLoss(reduction="none"), data, run or run_of(), **own, **arguments(options))


def looped(**options: Any) -> Loop:
    run = run_of(**({"unit": "user", "records": RECORDS // 2} if "users" in options else {}))
    loop = Loop(run, model=nn.Linear(3, 2), data=(ROWS, LABELS), batch_generator=None, noise_generator=None, **options)
    loop.whole()
    return loop


def linear(run: lethe.Run | None = None, **options: Any) -> Any:
    return fit_linear(run or last_run(), ROWS, LABELS, classes=2, **options)


def head() -> Any:
    backbone = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).requires_grad_(False)
    return fit_head(backbone, nn.Linear(4, 2, bias=False), (ROWS, LABELS), last_run())


def by_item(**options: Any) -> Any:
    return trained(data=MapStyleSource(list(zip(torch.tensor(ROWS), torch.tensor(LABELS), strict=True))), **options)


def evidence(certificate: lethe.Certificate) -> dict[str, str]:
    return {finding.name: finding.evidence for finding in certificate.findings}


def verified(certificate: lethe.Certificate, weights: Any, tmp_path: Path) -> Verification:
    certificate.save(tmp_path / "certificate.json")
    return lethe.verify(tmp_path / "certificate.json", weights=weights)


def test_fit_seals_the_state_dict(tmp_path: Path) -> None:
    fitted = trained()
    certificate = lethe.certify(fitted, DELTA)
    assert certificate.epsilon == lethe.certify(fitted.run, DELTA).epsilon
    assert evidence(certificate)["fresh noise"] == "enforced"
    torch.save(fitted.model.state_dict(), tmp_path / "model.pt")
    assert verified(certificate, tmp_path / "model.pt", tmp_path).yes
    with torch.no_grad():
        next(fitted.model.parameters())[0, 0] += 1e-3
    # What was changed after training is not what was sealed, and a certificate that is asked for now does not seal it.
    assert not verified(lethe.certify(fitted, DELTA), fitted.model.state_dict(), tmp_path).yes


def test_an_engine_seals_the_weights_of_the_moment_it_is_asked(tmp_path: Path) -> None:
    loop = looped()
    engine, record = loop.engine, loop.engine.record()
    assert record.run == engine.recorded_run()
    assert verified(lethe.certify(record, DELTA), loop.model.state_dict(), tmp_path).yes
    engine.close()
    with pytest.raises(lethe.InputError, match="it needs a"):
        lethe.certify(engine, DELTA)  # pyright: ignore[reportArgumentType]


def test_fit_linear_enforces_what_features_decide(tmp_path: Path) -> None:
    fitted = linear()
    certificate = lethe.certify(fitted, DELTA)
    found = evidence(certificate)
    assert (found["gradient bound"], found["curvature"], found["release"]) == ("enforced", "enforced", "declared")
    assert "every record's features are projected to norm 1 [by lethe.train]" in certificate.explain()
    np.savez(tmp_path / "w.npz", weights=fitted.model.weights, intercept=fitted.model.intercept)
    assert verified(certificate, tmp_path / "w.npz", tmp_path).yes
    assert not verified(certificate, {"weights": fitted.model.weights * 2, "intercept": fitted.model.intercept}, tmp_path).yes
    assert evidence(lethe.certify(fitted.run, DELTA))["gradient bound"] == "declared"


def test_the_secrecy_of_batches_is_enforced_where_they_are_drawn_inside() -> None:
    run = last_run(batches=lethe.batches.ShuffledOnce(10))
    assert evidence(lethe.certify(linear(run), DELTA))["secrecy"] == "enforced"
    certificate = lethe.certify(linear(run, batch_generator=torch.Generator().manual_seed(1)), DELTA)
    assert evidence(certificate)["secrecy"] == "declared"
    assert certificate.epsilon == float("inf")


def test_a_budget_filter_that_ran_is_enforced() -> None:
    fitted = trained(run_of(noise_budget=1.0))
    assert evidence(lethe.certify(fitted.run, DELTA, theorems=["budget-filter"]))["budget filter"] == "declared"
    certificate = lethe.certify(fitted, DELTA, theorems=["budget-filter"])
    assert evidence(certificate)["budget filter"] == "enforced"
    recheck(certificate)


def test_a_head_is_sealed_alone_and_with_its_backbone(tmp_path: Path) -> None:
    fitted = head()
    certificate, top = lethe.certify(fitted, DELTA), fitted.model[2]
    numbers = {"weights": top.weight.detach().double().numpy().T, "intercept": np.zeros(2)}
    for weights in (fitted.model.state_dict(), top.state_dict(), numbers):
        assert verified(certificate, weights, tmp_path).yes
    assert not verified(certificate, fitted.model[0].state_dict(), tmp_path).yes


def test_a_moving_average_is_sealed_beside_the_model(tmp_path: Path) -> None:
    fitted = trained(ema=0.9)
    certificate, averaged = lethe.certify(fitted, DELTA), dict(fitted.averaged)
    others = {name: found + 1 for name, found in averaged.items()}
    for weights, own in ((fitted.model.state_dict(), True), (averaged, True), (others, False)):
        assert verified(certificate, weights, tmp_path).yes == own


def test_a_model_without_plain_numbers_is_trained_and_not_sealed() -> None:
    model = nn.Linear(3, 2)
    model.register_buffer("graph", torch.zeros(2, 2).to_sparse())
    record = network_record(run_of(), model, ())
    assert record.released == ()
    with pytest.raises(lethe.InputError, match="certify the run alone"):
        lethe.certify(record, DELTA)


TRAININGS: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "fit": (lambda _: trained(), {"secrecy", *NETWORK}),
    "public callback": (lambda _: trained(callbacks=Callback()), {"secrecy", *NETWORK}),
    "private callback": (lambda _: trained(callbacks=Private()), {"secrecy", "callbacks", *NETWORK}),
    "fit with Adam": (lambda _: trained(adam=True), {"secrecy", "optimiser", "learning rate", *NETWORK}),
    "fit with checkpoints": (lambda path: trained(checkpoints=path / "kept"), {"secrecy", *NETWORK}),
    "fit, unchecked": (lambda _: trained(isolation="declared"), {"secrecy", "checks", *NETWORK}),
    "fit, enforced": (lambda _: trained(isolation="enforced"), {"secrecy", "start", "memory"}),
    "fit by item, enforced": (lambda _: by_item(isolation="enforced"), {"secrecy", "start", "memory", "padding", "data"}),
    "fit by item": (lambda _: by_item(), {"secrecy", "data", *NETWORK}),
    "fit, cyclic": (lambda _: trained(run_of(batches=lethe.batches.Cyclic(6))), NETWORK),
    "fit, last release": (lambda _: trained(run_of(batches=lethe.batches.Cyclic(6), release="last")), NETWORK),
    "users": (
        lambda _: trained(run_of(unit="user", records=RECORDS // 2), users=USERS),
        {"secrecy", "users", "user of a record", "list of ids", *NETWORK},
    ),
    "loop": (lambda _: looped().engine.record(), {"secrecy", "loop", "replay", "optimiser", "learning rate", *NETWORK}),
    "loop of users": (
        lambda _: looped(users=USERS).engine.record(),
        {"secrecy", "loop", "replay", "order", "optimiser", "learning rate", "users", "user of a record", "list of ids", *NETWORK},
    ),
    "linear model": (lambda _: linear(), {"release"}),
    "linear model, private callback": (
        lambda _: linear(callbacks=Private()),
        {"release", "callbacks"},
    ),
    "head": (lambda _: head(), {"release", "public backbone", "records apart", "memory", "start"}),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_declared_are_the_lines_that_apply_each_in_few_words(name: str, tmp_path: Path) -> None:
    train, expected = TRAININGS[name]
    certificate = lethe.certify(train(tmp_path), DELTA)
    declared = [finding for finding in certificate.findings if finding.evidence == "declared"]
    assert {finding.name for finding in declared} == expected
    assert {finding.words: len(finding.words.split()) for finding in declared if len(finding.words.split()) > MOST_WORDS} == {}
    assert len({finding.words for finding in declared}) == len(declared)
