"""Runs in Lethe's accountant: executions by label, and no credit left once an earlier iterate is out."""

import ast
import math
import re
from typing import Any

import numpy as np
import pytest
from dp_accounting import UnsupportedEventError, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from helpers import DESIGNS
from interop_cases import ADD, DELTAS, RELATIONS, REPLACE, ZERO, gaussian, run_of, spent
from repository import ROOT

import lethe
from lethe.integrations.dp_accounting import IterateDpEvent, LastIterateDpEvent, LetheAccountant


@pytest.mark.sampled(3)
@pytest.mark.parametrize("design", DESIGNS)
def test_one_run_costs_its_certificate(design: str) -> None:
    run = run_of(design)
    accountant = LetheAccountant(REPLACE).compose(LastIterateDpEvent(run, "monday"))
    for delta in DELTAS:
        certificate = lethe.certify(run, delta)
        assert accountant.get_epsilon(delta) == pytest.approx(certificate.epsilon, rel=1e-9)  # ties are settled otherwise
    assert accountant.get_delta(1.0) <= lethe.certify(run, 1e-5).delta_at(1.0)


def test_two_gaussian_runs_compose_exactly() -> None:
    first, second = run_of(), run_of(noise_multiplier=6.0, passes=9)
    mus = [lethe.certify(run, 1e-5).guarantee.mu for run in (first, second)]  # pyright: ignore[reportAttributeAccessIssue]
    total = spent(REPLACE, LastIterateDpEvent(first, "a"), LastIterateDpEvent(second, "b"))
    assert total == pytest.approx(lethe.guarantees.GDP(math.hypot(*mus)).epsilon(1e-5), rel=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", ["shuffled_once", "shuffled"])
def test_two_runs_in_secret_order_cost_the_mixture_of_pairs(design: str) -> None:
    run = run_of(design, passes=2)
    mixture = lethe.certify(run, 1e-5).guarantee
    assert isinstance(mixture, lethe.guarantees.GDPMixture)
    # Pairs of components, binned by nothing: the exact composition of the dominating pairs.
    mus = np.hypot.outer(mixture.mus, mixture.mus).ravel()
    exact = lethe.guarantees.GDPMixture(tuple(mus), tuple(np.outer(mixture.weights, mixture.weights).ravel() * (1 - 1e-12)))
    total = spent(REPLACE, LastIterateDpEvent(run, "a"), LastIterateDpEvent(run, "b"))
    assert exact.epsilon(1e-5) <= total <= exact.epsilon(1e-5) * (1 + 1e-3)


def test_a_label_is_one_execution_and_two_labels_are_two() -> None:
    run = run_of()
    event, mu = LastIterateDpEvent(run, "a"), lethe.certify(run, 1e-5).guarantee.mu  # pyright: ignore[reportAttributeAccessIssue]

    def executions(count: int) -> Any:
        return pytest.approx(lethe.guarantees.GDP(mu * math.sqrt(count)).epsilon(1e-5), rel=1e-9)

    assert spent(REPLACE, event, event, event) == executions(1)
    assert spent(REPLACE, event, LastIterateDpEvent(run, "b")) == executions(2)
    assert LetheAccountant(REPLACE).compose(event, 3).get_epsilon(1e-5) == executions(3)
    assert spent(REPLACE, dp_event.SelfComposedDpEvent(event, 3)) == executions(3)
    # dp_accounting defines self-composition as a list of copies, so copies in one list are executions too.
    assert spent(REPLACE, dp_event.ComposedDpEvent([event, gaussian(math.inf), event])) == executions(2)
    assert LetheAccountant(REPLACE).compose(event).compose(event, 3).compose(event).get_epsilon(1e-5) == executions(4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled", "poisson"])
def test_an_earlier_iterate_ends_the_credit_in_both_orders(design: str) -> None:
    run = run_of(design)
    last, earlier = LastIterateDpEvent(run, "a"), IterateDpEvent(run, 7, "a")
    everything = lethe.certify(run.replace(release="all"), 1e-5).epsilon
    for events in (
        (last, earlier),
        (earlier, last),
        (earlier,),
        (last, earlier, last, earlier),
        (dp_event.ComposedDpEvent([earlier, last]),),
    ):
        assert spent(REPLACE, *events) == everything
    assert spent(REPLACE, last) < everything or design == "poisson"
    # Of another execution it ends nothing, and every execution of a label that was composed several times over is exposed with it.
    apart = spent(REPLACE, last, IterateDpEvent(run, 7, "b"))
    assert everything < apart <= LetheAccountant(REPLACE).compose(dp_event.ComposedDpEvent([earlier, last]), 2).get_epsilon(1e-5)
    both = LetheAccountant(REPLACE).compose(last, 2).compose(earlier)
    assert both.get_epsilon(1e-5) >= spent(REPLACE, earlier, IterateDpEvent(run, 9, "b"))


def test_an_iterate_before_any_noise_makes_the_run_public() -> None:
    run = run_of(noise_at="pass_ends")
    last, earlier = LastIterateDpEvent(run, "a"), IterateDpEvent(run, 3, "a")
    assert spent(REPLACE, last) < math.inf
    assert spent(REPLACE, last, earlier) == spent(REPLACE, earlier, last) == math.inf


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_a_run_under_another_relation_is_refused(neighbours: str) -> None:
    event = LastIterateDpEvent(run_of("poisson", neighbours), "a")
    for relation in RELATIONS.values():
        assert LetheAccountant(relation).supports(event) is (relation is RELATIONS[neighbours])
    wrong = LetheAccountant(ADD if neighbours != "add_or_remove" else ZERO)
    with pytest.raises(UnsupportedEventError, match="neighbours"):
        wrong.compose(event)
    assert wrong.get_epsilon(1e-5) == 0.0


def test_a_label_names_one_run() -> None:
    accountant = LetheAccountant(REPLACE).compose(LastIterateDpEvent(run_of(), "a"))
    before = accountant.get_epsilon(1e-5)
    with pytest.raises(UnsupportedEventError, match="another run"):
        accountant.compose(LastIterateDpEvent(run_of(passes=5), "a"))
    both = dp_event.ComposedDpEvent([LastIterateDpEvent(run_of(), "new"), IterateDpEvent(run_of(passes=5), 1, "new")])
    assert not accountant.supports(both)
    assert accountant.get_epsilon(1e-5) == before


def test_stock_accountants_refuse_runs_and_names_round_trip() -> None:
    for event in (LastIterateDpEvent(run_of(), "a"), IterateDpEvent(run_of(), 3, "a")):
        assert not any(kind(neighboring_relation=REPLACE).supports(event) for kind in (PLDAccountant, RdpAccountant))
        assert dp_event.DpEvent.from_named_tuple(event.to_named_tuple()) == event


def test_events_check_what_they_are_given() -> None:
    run: Any = run_of()
    for label in ("", "  ", None, 3):
        with pytest.raises(lethe.InputError, match="label"):
            LastIterateDpEvent(run, label)  # pyright: ignore[reportArgumentType]
    for step in (0, -1, run.total_steps, 1.5, None, True):
        with pytest.raises(lethe.InputError, match="step"):
            IterateDpEvent(run, step, "a")  # pyright: ignore[reportArgumentType]
    with pytest.raises(lethe.InputError, match="no iterate before the last"):
        IterateDpEvent(run_of("full", passes=1), 1, "a")
    counted = IterateDpEvent(run, np.int64(3), "a")  # pyright: ignore[reportArgumentType]
    assert counted == IterateDpEvent(run, 3, "a")
    assert type(counted.step) is int
    for not_a_run in (None, run.to_document(), run.replace(noise_multiplier=None)):
        for make in (lambda bad: LastIterateDpEvent(bad, "a"), lambda bad: IterateDpEvent(bad, 1, "a")):
            with pytest.raises(lethe.InputError):
                make(not_a_run)


def test_the_page_s_example_runs_and_prints_what_it_says() -> None:
    page = (ROOT / "docs" / "interop.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    names: dict[str, Any] = {}
    for example in examples:
        lines = example.splitlines()
        for node in ast.parse(example).body:
            statement = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            code, _, said = statement.partition("  # ")
            if said and said.replace(".", "").isdigit():
                assert f"{eval(code, names):.4g}" == said, code
            else:
                exec(statement, names)
