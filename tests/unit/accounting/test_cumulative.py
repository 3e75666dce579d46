"""How the privacy loss of a run grows."""

import math

import pytest
from helpers import batches, make_run

import lethe
from lethe.accounting.cumulative import cumulative_privacy, stopped


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"batches": batches("full", 1)}, {"noise_at": "pass_ends"}, {"release": "all"}])
def test_it_ends_at_the_run_s_own_certificates(changes) -> None:
    run = make_run(**changes)
    grown = cumulative_privacy(run, 1e-5, points=6)
    assert grown.steps[-1] == run.total_steps
    assert grown.last_iterate[-1] == pytest.approx(lethe.certify(run.replace(release="last"), 1e-5).epsilon, rel=1e-12)
    assert grown.every_iterate[-1] == pytest.approx(lethe.certify(run.replace(release="all"), 1e-5).epsilon, rel=1e-12)
    assert all(last <= every * (1 + 1e-9) for last, every in zip(grown.last_iterate, grown.every_iterate, strict=True))


@pytest.mark.slow
def test_all_iterates_lose_more_and_more() -> None:
    every = cumulative_privacy(make_run(), 1e-5, points=8).every_iterate
    assert sorted(every) == list(every)


@pytest.mark.slow
def test_a_moment_without_noise_after_a_touch_is_not_private() -> None:
    run = make_run(noise_multiplier=[0.0, 5.0] * 25)
    found = cumulative_privacy(run, 1e-5, points=10)
    assert found.last_iterate[0] == math.inf
    assert found.to_dict()["last_iterate"][0] == "inf"


def test_a_beginning_keeps_noise_and_step_sizes() -> None:
    run = make_run(
        noise_at="pass_ends",
        noise_multiplier=[1.0, 2.0, 3.0, 4.0, 5.0],
        step_size={"schedule": "step", "first": 0.5, "factor": 0.5, "period": 7},
    )
    beginning = stopped(run, 30)
    assert beginning.noise_stds == pytest.approx(run.noise_stds[:30], rel=1e-15)
