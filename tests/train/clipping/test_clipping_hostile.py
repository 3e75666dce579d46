"""What people write into models by which records meet: refused, with a reason that names the cause."""

from __future__ import annotations

import re

import pytest
from hostile_models import HOSTILE, Between, moved_by, rows, told
from torch import nn

from lethe.errors import LetheError

HARMLESS = {"squeezed": "squeeze() of several records changes nothing, and of one is refused by its shape"}
REASONS = r"depends on the other records|keeps what it saw|another order|changed while records passed"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - HARMLESS.keys()))
@pytest.mark.parametrize("seed", range(2))
def test_it_is_refused_with_its_reason(name: str, seed: int) -> None:
    error = told(lambda: Between(HOSTILE[name]), [rows(10 * seed + number) for number in range(3)])
    assert isinstance(error, LetheError)
    assert re.search(REASONS, str(error))


MOVING = ["with_past_batches", "with_a_global_bank", "mixup_with_a_fixed_seed", "in_batch_negatives", "folded_wrongly"]


@pytest.mark.nightly(by_day="test_it_is_refused_with_its_reason")
@pytest.mark.slow
@pytest.mark.parametrize("name", MOVING)
def test_unrefused_one_record_would_move_the_sum_by_more_than_its_bound(name: str) -> None:
    """What `moved_by` tells is the excess over what a bounded sum may be moved by."""
    assert moved_by(lambda: Between(HOSTILE[name]), [rows(seed) for seed in range(3)]) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.filterwarnings("ignore:the clipper could not check everything")
def test_what_is_harmless_passes(name: str) -> None:
    assert told(lambda: Between(HOSTILE[name]), [rows(seed) for seed in range(3)]) is None
    assert moved_by(lambda: Between(HOSTILE[name]), [rows(seed) for seed in range(3)]) <= 1e-9


def test_an_honest_model_passes() -> None:
    def between(model: nn.Module, hidden: object) -> object:
        return hidden

    assert told(lambda: Between(between), [rows(seed) for seed in range(3)]) is None  # pyright: ignore[reportArgumentType]
