"""PrivateSearch on tables in blocks: the candidate, its weights, its score and its guarantee are those of memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from partitioned_records import COLUMNS, SETTINGS, frame, in_blocks, records, written
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from lethe.errors import InputError, LetheError
from lethe.estimators import LogisticRegression, PrivateSearch, PrivateStandardScaler, privacy_of
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.partitioned.tables import nothing_else
from lethe.partitions import array_table
from lethe.partitions.table import chosen_records


def test_a_pipeline_is_searched_on_files_and_nobody_is_told_how_often_it_tried(tmp_path: Path) -> None:
    def search() -> PrivateSearch:
        model = LogisticRegression(options=EstimatorOptions(mechanism="output_perturbation"), feature_norm=2.0)
        steps = Pipeline([("scale", PrivateStandardScaler(bounds=(-4.0, 4.0))), ("model", model)])
        return PrivateSearch(steps, {"model__C": [0.1, 1.0]}, tries=3.0, **SETTINGS)

    table, told = frame()[[*COLUMNS, "label"]], list[tuple[int, int, int]]()
    blocks = replace(written(tmp_path, a=table[:1000], b=table[1000:]), progress=lambda *where: told.append(where))
    found, expected = search().fit(blocks, "label"), search().fit(table[list(COLUMNS)], table["label"])
    np.testing.assert_allclose(found.best_estimator_["model"].coef_, expected.best_estimator_["model"].coef_, rtol=0.0, atol=1e-9)
    assert found.best_score_ == pytest.approx(expected.best_score_, rel=0.0, abs=1e-9)
    assert list(vars(found)["feature_names_in_"]) == list(COLUMNS)
    assert privacy_of(found).guarantee == privacy_of(expected).guarantee
    assert {number for number, _, _ in told} == {1}  # the look at the table before the first try
    assert "NOT public: how many passes" in found.privacy_report_
    assert (found.predict(table[list(COLUMNS)]) == expected.predict(table[list(COLUMNS)])).all()


def test_every_record_is_on_one_side_and_a_block_that_changed_is_refused() -> None:
    features, labels, _ = records()
    features[:, 0] = np.arange(1500)
    table, _ = array_table(features, labels, blocks=7).examined(nothing_else)
    mask = np.random.default_rng(0).random(1500) < 0.3
    sides = [chosen_records(table, side).examined(lambda block: block.features[:, 0].astype(int))[1] for side in (mask, ~mask)]
    np.testing.assert_array_equal(np.concatenate(sides[0]), np.flatnonzero(mask))
    np.testing.assert_array_equal(np.concatenate(sides[1]), np.flatnonzero(~mask))
    features[1400, 1] += 1.0
    with pytest.raises(LetheError, match=r"block 6 \(.*holds other records"):
        chosen_records(table, mask).examined(nothing_else)


def test_a_step_that_transforms_arrays_is_refused_on_blocks() -> None:
    steps = Pipeline(
        [
            ("norms", Normalizer()),
            ("model", LogisticRegression(options=EstimatorOptions(mechanism="output_perturbation"), feature_norm=2.0)),
        ]
    )
    with pytest.raises(InputError, match="step 'norms', Normalizer, transforms arrays in memory, and X is a table in blocks"):
        PrivateSearch(steps, {"model__C": [1.0]}).fit(in_blocks(2, "label"), None)
