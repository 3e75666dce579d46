"""A short part of the fuzzing of certificates; `make fuzz` runs the long one."""

import pytest
from fuzz_accounting import exact_delta, exact_law, fuzz
from helpers import make_run
from how_many import by_night

import lethe


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lethe.errors.LargeDeltaWarning")
def test_no_certificate_says_less_than_linear_losses_reveal() -> None:
    count = 400 if by_night() else 40
    counts, wrong = fuzz(1_000_000, count)
    assert wrong == []
    assert counts["compared with a truth"] > count / 10


@pytest.mark.parametrize("design", [{"design": "full"}, {"design": "cyclic", "size": 10}])
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_an_epsilon_one_per_cent_too_small_is_noticed(design: dict[str, object], neighbours: str) -> None:
    """Linear losses exhaust full batches, and one pass of cyclic ones whose noise is at its end."""
    run = make_run(
        batches=design,
        passes=1,
        loss={"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": 1.0},
        clip_norm=1.0,
        noise_at="pass_ends",
    )
    run = run.replace(noise_multiplier=2.0, neighbours=neighbours)
    law = exact_law(run)
    assert law is not None
    epsilon = lethe.certify(run, 1e-3).epsilon
    assert exact_delta(run, law, epsilon) <= 1e-3
    assert exact_delta(run, law, 0.99 * epsilon) > 1e-3 * (1 + 1e-3)
