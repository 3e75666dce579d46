"""Features of linear models: finite, projected, in chunks; and targets."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from lethe.errors import InputError
from lethe.run.losses import LeastSquares, Logistic, Softmax
from lethe.train.linear import models as features
from lethe.train.linear.models import Features, prepare_features, prepare_targets

CPU = torch.device("cpu")


def prepare(values: object, intercept: bool = False, dtype: torch.dtype = torch.float64) -> Features:
    return prepare_features(values, feature_norm=2.0, intercept=intercept, dtype=dtype, device=CPU)


def test_long_rows_are_projected_and_counted_and_short_rows_are_untouched() -> None:
    given = np.array([[3.0, 4.0], [0.6, 0.8], [0.0, -2.5]])
    kept = given.copy()
    features = prepare(given)
    # norms 5, 1, 2.5 against the bound 2; (d + 16) eps is far below 1e-14
    assert features.rows.numpy() == pytest.approx(np.array([[1.2, 1.6], [0.6, 0.8], [0.0, -2.0]]), rel=1e-14)
    assert features.projected == 2
    assert (given == kept).all()


def test_the_constant_feature_comes_after_the_projection() -> None:
    features = prepare([[30.0, 40.0]], intercept=True)
    assert features.rows.shape == (1, 3)
    assert features.rows[0, 2] == 1.0
    assert float(torch.linalg.vector_norm(features.rows[0, :2])) == pytest.approx(2.0, rel=1e-14)  # (d + 16) eps


READ_ONLY = np.eye(2)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("values", [[[1, 0], [0, 1]], np.eye(2, dtype=np.float32), torch.eye(2), np.eye(2, dtype=bool), READ_ONLY])
def test_lists_arrays_and_tensors_are_read(values: object) -> None:
    assert (prepare(values).rows.numpy() == np.eye(2)).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_an_entry_that_is_not_finite_is_refused_by_row(bad: float) -> None:
    values = np.zeros((5, 3))
    values[3, 1] = bad
    with pytest.raises(InputError, match=r"features\[3, 1\].*row 3"):
        prepare(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(4), "shape"),
        (np.zeros((0, 3)), "shape"),
        (np.zeros((3, 0)), "shape"),
        (np.zeros((2, 2, 2)), "shape"),
        ([["a", "b"]], "real numbers"),
        ([[1.0, None]], "real numbers"),
        (np.zeros((2, 2), dtype=complex), "real numbers"),
        (torch.zeros(2, 2, dtype=torch.complex64), "real numbers"),
        ([[1.0, 2.0], [3.0]], "cannot be read"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(values: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(values)


SOFTMAX = Softmax(feature_norm=1.0)
LOGISTIC = Logistic(feature_norm=1.0)
SQUARES = LeastSquares(feature_norm=1.0, residual_bound=1.0)


def test_the_number_of_classes_is_public_and_never_guessed() -> None:
    assert SOFTMAX.for_classes(10).outputs == SOFTMAX.for_classes(10).for_classes(None).target_classes == 10
    assert LOGISTIC.for_classes(None).target_classes == LOGISTIC.for_classes(2).target_classes == 2
    assert SQUARES.for_classes(None).target_classes is None
    with pytest.raises(InputError, match="classes"):
        assert SOFTMAX.outputs


def test_a_number_of_classes_that_does_not_fit_is_refused() -> None:
    unfit = ((SOFTMAX, (None, 1, True, 2.0)), (SOFTMAX.for_classes(3), (4,)), (LOGISTIC, (3, True)), (SQUARES, (2,)))
    for loss, numbers in unfit:
        for classes in numbers:
            with pytest.raises(InputError, match="classes: got"):
                loss.for_classes(classes)  # pyright: ignore[reportArgumentType]


def targets(values: object, classes: int | None = 3, records: int = 3) -> torch.Tensor:
    return prepare_targets(values, classes=classes, records=records, device=CPU)


def test_class_numbers_become_integers_and_real_targets_stay() -> None:
    assert targets([0.0, 2.0, 1.0]).tolist() == [[0], [2], [1]]
    assert targets([0.5, -2.0, 1.0], classes=None).tolist() == [[0.5], [-2.0], [1.0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 3], r"targets\[2\] = 3; it needs a class, a whole number from 0 to 2"),
        ([0, -1, 1], r"targets\[1\] = -1"),
        ([0, 0.5, 1], r"targets\[1\] = 0.5"),
        ([0, float("nan"), 1], r"targets\[1\]: got nan"),
        ([0, 1], "shape"),
        ([[0, 1, 2]], "shape"),
        (["a", "b", "c"], "real numbers"),
    ],
)
def test_bad_class_numbers_are_refused_by_row(values: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        targets(values)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"targets\[1\]"):
            targets([0.0, bad, 1.0], classes=None)


@pytest.mark.parametrize("intercept", [False, True])
def test_chunks_change_nothing_and_count_their_rows(intercept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    common = {"feature_norm": 1.5, "intercept": intercept, "dtype": torch.float32, "device": torch.device("cpu")}
    whole = prepare_features(table, **common)
    monkeypatch.setattr(features, "_CHUNK", 21)  # seven rows at a time
    parts = prepare_features(torch.from_numpy(table), **common)
    assert torch.equal(parts.rows, whole.rows)
    assert parts.projected == whole.projected
    table[23, 1] = np.nan
    with pytest.raises(InputError, match=r"features\[23, 1\]: got nan; .*row 23"):
        prepare_features(table, **common)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel counts the peak of memory")
def test_a_table_of_single_precision_is_copied_once_in_single_precision() -> None:
    table = torch.rand(8000, 2000)  # 64 MB
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    kept = prepare_features(table, feature_norm=1.0, intercept=True, dtype=torch.float32, device=torch.device("cpu"))
    assert kept.rows.nbytes == 8000 * 2001 * 4
    assert _peak() - before < 2 * kept.rows.nbytes  # at 8 bytes a number one copy alone would be as large


def _peak() -> int:
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
