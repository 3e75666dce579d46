"""What tables in blocks refuse, and what estimators and linear models refuse of them: the call, and what the error names."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from doors import fit_head, fit_linear
from partitioned_records import COLUMNS, SETTINGS, frame, in_blocks, model_of, owned, records
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer
from torch import nn

import lethe
from lethe.errors import InputError, LetheError
from lethe.estimators import (
    HeavyTailedLogisticRegression,
    LogisticRegression,
    PrivateMean,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
    Ridge,
)
from lethe.estimators.partitioned import records as rows_of_users
from lethe.estimators.partitioned.tables import nothing_else
from lethe.partitions import array_table, dask_table, parquet_table
from lethe.run.losses import Logistic
from lethe.train import Linear, fit

FEATURES, LABELS, _ = records()


def read(table: Any) -> None:
    table.examined(nothing_else)


def spoilt(place: tuple[int, ...], value: float) -> Any:
    """A table of three blocks with one feature, or one label, of that value."""
    features, labels = FEATURES.copy(), LABELS.astype(float)
    (features if len(place) == 2 else labels)[place] = value
    return array_table(features, labels, blocks=3)


TABLES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: parquet_table(folder / "none"), "it needs a file, a folder"),
    (lambda folder: parquet_table(3), "paths: got 3; it needs a file"),
    (lambda folder: parquet_table([folder / "a.parquet", 3]), "it needs a file, a folder, a pattern or a list of files"),
    (lambda folder: parquet_table([]), r"paths: got \[\]; it needs a file"),
    (lambda folder: parquet_table(folder / "text.parquet"), "cannot be read as a Parquet file"),
    (lambda folder: parquet_table(folder / "a.parquet", columns=["agee"]), "columns: got 'agee'"),
    (lambda folder: parquet_table(folder / "a.parquet", columns=["age", "age"]), "columns: got .*; each needs to be named once"),
    (
        lambda folder: parquet_table(folder / "a.parquet", columns=["age"]).with_target("label"),
        r"y: got 'label'.*\n.*\n.*columns= of parquet",
    ),
    (lambda folder: parquet_table(folder / "a.parquet").with_beside(weights="w", users=None), "sample_weight: got 'w'; it needs names of"),
    (lambda folder: parquet_table(folder / "a.parquet").with_target("labels"), "y: got 'labels'; it needs names of columns"),
    (lambda folder: read(parquet_table(folder / "words.parquet")), "column 'name': it holds object; it needs numbers"),
    (lambda folder: read(parquet_table(folder / "gaps.parquet")), "column 'count': a value is missing"),
    (lambda folder: parquet_table([folder / "a.parquet", folder / "nobody.parquet"]), "nobody.parquet: holds no records"),
    *(
        (lambda folder, name=name: parquet_table([folder / "a.parquet", folder / name]), r"is listed twice.*its records would count twice")
        for name in ("a.parquet", "link.parquet", "hard.parquet")
    ),
    (lambda folder: read(dask_table(dd.from_map(frame, [20, 0, 3]))), "partition 1: holds no records"),
    (lambda folder: read(dask_table(dd.from_map(frame, [20, -3], meta=frame(1)))), "partition 1: cannot be computed: negative dimensions"),
    (lambda folder: read(array_table(np.ones((0, 2)))), "holds no records"),
    (lambda folder: array_table(folder / "a.parquet"), "cannot be read as a .npy file"),
    (lambda folder: array_table(np.ones(3)), r"X: got shape \(3,\)"),
    (lambda folder: array_table(np.ones((3, 2)), np.ones(4)), r"y: got shape \(4,\)"),
    (lambda folder: array_table(np.array([["a"]])), "X: got <U1; it needs numbers"),
    (lambda folder: array_table(np.ones((3, 2)), progress=1), "progress: got 1; it needs True, False or a function"),
    (lambda folder: array_table(np.ones((3, 2))).with_target("a"), "columns of an array have no names"),
    (lambda folder: dask_table(np.ones((3, 2))), "X: got ndarray"),
    (lambda folder: dask_table(da.ones(3)), "X: got Array"),
    (lambda folder: dask_table(dd.from_pandas(frame(20), npartitions=2)["age"]), "X: got Series"),
    (lambda folder: dask_table(dd.from_pandas(frame(20), npartitions=2), np.ones(20)), "y: got ndarray; it needs one column"),
    (lambda folder: dask_table(da.ones((4, 2), chunks=2), da.ones(4, chunks=4)), "y: got 1 partitions; it needs one column in the 2"),
    (lambda folder: dask_table(da.ones((4, 2), chunks=2), client=3), "client: got int"),
]


def search(model: Any) -> PrivateSearch:
    steps = Pipeline([("norms", Normalizer()), ("model", model)])
    return PrivateSearch(steps, {"model__C": [1.0]})


CLIPPER = PrivateQuantileClipper(**SETTINGS).fit(FEATURES)
FITS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Ridge().fit(array_table(np.ones((4, 2))), None), "y: it needs the targets"),
    (lambda: Ridge().fit(in_blocks(2, "amount"), np.ones(1500)), "y: got ndarray; for a table in blocks"),
    (lambda: Ridge(feature_norm=1.0).fit(array_table(np.ones((1, 2)), np.ones(1)), None), "X: got 1 records in 1 blocks"),
    (lambda: LogisticRegression().fit(array_table(np.ones((9, 2)), np.ones(9)), None), "got 1 class"),
    (lambda: LogisticRegression().fit(in_blocks(2, "amount"), None), r"block 0 \(.*column 'y': Unknown label type"),
    (
        lambda: LogisticRegression(classes=[0, 2]).fit(in_blocks(2, "label"), None),
        r"block 0 \(.*'y': y: got 1, which is not in the public list",
    ),
    (lambda: Ridge(feature_norm=1.0).fit(spoilt((700,), np.nan), None), r"block 1 \(records 500 to 1000\), column 'y': row 200 holds nan"),
    (
        lambda: model_of(LogisticRegression, "output_perturbation", feature_norm=2.0).fit(FEATURES, LABELS).predict(in_blocks(2, "label")),
        "X: got PartitionedTable, a",
    ),
    (
        lambda: model_of(HeavyTailedLogisticRegression, "localised", order=4.0, radius=1.0).fit(in_blocks(2, "label"), None),
        'mechanism = "localised": it draws records at random',
    ),
    (
        lambda: search(LogisticRegression(feature_norm=2.0)).fit(in_blocks(2, "label"), None),
        "step 'norms', Normalizer, transforms arrays in",
    ),
    (
        lambda: model_of(LogisticRegression, feature_norm=2.0).fit(spoilt((700, 3), np.nan), None),
        r"block 1 \(.*column 3: row 200 holds nan",
    ),
    *(
        (lambda wrong=wrong: read(CLIPPER.transform(spoilt((1000, 2), wrong))), f"column 2: row 0 holds {wrong}")
        for wrong in (np.inf, np.nan)
    ),
]


def a_run(**changes: Any) -> lethe.Run:
    fields = {"records": 1500, "batches": lethe.batches.Cyclic(70), "passes": 2, "step_size": 0.5, "noise_multiplier": 1.0}
    loss = Logistic(feature_norm=1.0)
    return lethe.Run(**{**fields, "release": "last", "neighbours": "replace_one", "loss": loss, **changes})


def trained(table: Any = None, **changes: Any) -> Any:
    return fit_linear(a_run(**changes), in_blocks(2, "label") if table is None else table, seed=1)


class Bare(nn.Module):
    """A function of a batch as a backbone."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], kept: Any = None) -> None:
        super().__init__()
        self.function, self.kept = function, kept

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.function(rows)


def head_on(function: Callable[[torch.Tensor], torch.Tensor], table: Any = None, kept: Any = None) -> Any:
    """The head is as it was."""
    head = nn.Linear(5, 1, bias=False)
    before = head.weight.detach().clone()
    try:
        return fit_head(Bare(function, kept), head, in_blocks(3, "label") if table is None else table, a_run(), seed=1)
    finally:
        assert torch.equal(head.weight, before)


def meeting_later(rows: torch.Tensor) -> torch.Tensor:
    """Keeps records apart but in batches of 44, such as the last block ends in."""
    return rows - rows.mean(dim=0) if len(rows) == 44 else rows


def later() -> Any:
    chunks = (600, 600, 300)
    return dask_table(da.from_array(FEATURES, chunks=(chunks, 5)), da.from_array(LABELS, chunks=(chunks,)))


TRAININGS: list[tuple[Callable[[], Any], str]] = [
    (lambda: trained(records=1400), "records: the run says 1400; the table in blocks has 1500"),
    (lambda: trained(array_table(FEATURES)), "y: it needs the targets"),
    (lambda: trained(spoilt((1400,), 2.0)), r"block 2 \(.*targets\[400\] = 2; it needs a class"),
    (lambda: trained(spoilt((1400,), 0.5)), r"block 2 \(.*targets\[400\] = 0\.5"),
    (lambda: trained(spoilt((1400,), np.nan)), r"block 2 \(.*column 'y': row 400 holds nan"),
    (lambda: trained(spoilt((700, 2), np.nan)), r"block 1 \(.*column 2: row 200 holds nan"),
    (lambda: fit(nn.Linear(5, 2), nn.MSELoss(reduction="none"), in_blocks(2, "label"), a_run(clip_norm=1.0)), "data: got"),
    (
        lambda: trained(batches=lethe.batches.Full()).model.predict(in_blocks(2, "label")),
        "features: got PartitionedTable, a table in blocks",
    ),
    (lambda: head_on(lambda rows: rows - rows.mean(dim=0)), r"block 0 \(.*the features of some records change when"),
    (lambda: head_on(meeting_later, later()), r"partition 2: .*the features of some records change when"),
    (lambda: head_on(lambda rows: rows, kept=threading.Lock()), "backbone: cannot be copied"),
    (lambda: head_on(lambda rows: torch.where(rows == rows[-1, -1], torch.inf, rows)), r"block 0 \(.*features\[\d+, \d\]: got inf"),
    (lambda: head_on(lambda rows: rows[:, :4]), r"backbone: gave .*\(256, 4\)"),
]
PEOPLE = owned(frame()[[*COLUMNS, "amount"]])


def ridge(
    people: pd.DataFrame = PEOPLE, *, users: Any = None, sample_weight: Any = None, mechanism: str = "auto", **parameters: Any
) -> Any:
    model = model_of(Ridge, mechanism, **{"target_bound": 5.0, "feature_norm": 2.0, **parameters})
    return model.fit(dd.from_pandas(people, npartitions=2), "amount", users=users, sample_weight=sample_weight)


def scaled_users() -> Any:
    steps = Pipeline([("scale", PrivateStandardScaler(bounds=(-4.0, 4.0), **SETTINGS)), ("model", model_of(Ridge, target_bound=5.0))])
    return steps.fit(dd.from_pandas(PEOPLE.drop(columns="weight_of"), npartitions=2), "amount", model__users="person")


def named(**columns: str) -> Any:
    """A table whose weights or users were named where it was made."""
    people = owned(frame()[[*COLUMNS, "label"]])
    return dask_table(dd.from_pandas(people, npartitions=2), workers=1).with_target("label").with_beside(**columns)


USERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: ridge(users=PEOPLE["person"]), "users: got Series; it needs names of columns, and the table has 'age'"),
    (lambda: ridge(sample_weight="w"), "sample_weight: got 'w'; it needs names of columns, and the table has 'age'"),
    (lambda: ridge(users="amount"), "y, sample_weight, users: got .* each needs a column of its own"),
    (lambda: model_of(Ridge).fit(in_blocks(2, "amount"), None, users="person"), "users: got person; it needs a column's name"),
    (scaled_users, "users: got person; it needs a column's name"),
    (lambda: ridge(users="person", rows_per_user=2), "rows_per_user: rows of one user may lie in several blocks"),
    (lambda: ridge(users="person", feature_norm="auto"), 'feature_norm = "auto": that is released from single rows'),
    (lambda: ridge(users="person", mechanism="cyclic"), "of a table in blocks only full batches count users"),
    (
        lambda: ridge(sample_weight="weight_of"),
        r"partition 0, column 'sample_weight': row \d+ holds [\d.]+; it needs a number from 0 to max",
    ),
    (lambda: ridge(PEOPLE.assign(weight_of=np.nan), sample_weight="weight_of"), "column 'sample_weight': row 0 holds nan"),
    (
        lambda: ridge(PEOPLE.assign(person=PEOPLE["person"] + 0.5), users="person"),
        "partition 0, column 'users': got ids of the types float",
    ),
    (lambda: ridge(PEOPLE.assign(person=1), users="person"), "users: there are 1; a table in blocks takes 2 to"),
    (lambda: named(weights="weight_of").with_beside(weights="age"), "sample_weight: got 'age'; the table has 'weight_of' already"),
    (
        lambda: dask_table(dd.from_pandas(PEOPLE, npartitions=2)).with_beside(weights="amount").with_target("amount"),
        "each needs a column of its",
    ),
]
TAKES_NONE: list[Callable[[Any], Any]] = [
    lambda given: PrivateSearch(LogisticRegression(feature_norm=2.0), {"C": [1.0]}, tries=2.0, **SETTINGS).fit(given, None),
    lambda given: PrivateStandardScaler(bounds=(-4.0, 4.0), **SETTINGS).fit(given),
    lambda given: PrivateStandardScaler(bounds=(-4.0, 4.0), **SETTINGS).fit(frame()[["age"]]).transform(given),
    lambda given: model_of(PrivateMean, "multi_pass", passes=2, centre=[0.0] * 5, moment=3.0).fit(given),
    trained,
]


def every_row() -> Iterator[tuple[Callable[[Path], Any], str]]:
    yield from TABLES
    yield from ((lambda _, call=call: call(), said) for call, said in [*FITS, *TRAININGS, *USERS])
    for call in TAKES_NONE:  # behind a search, or a step, weights would scale what a record does without bound
        for column, what in (("weights", "weights"), ("users", "users")):
            said = f"X: the table in blocks has {what}; only fit of the linear models"
            yield (lambda _, call=call, column=column: call(named(**{column: "weight_of"}))), said


@pytest.mark.parametrize(("call", "said"), [pytest.param(call, said, id=said) for call, said in every_row()])
def test_what_is_not_done_in_blocks_is_refused_by_name(call: Callable[[Path], Any], said: str, files: Path) -> None:
    with pytest.raises(LetheError, match=said):
        call(files)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    frame(20).to_parquet(folder / "a.parquet")
    (folder / "link.parquet").symlink_to(folder / "a.parquet")
    (folder / "hard.parquet").hardlink_to(folder / "a.parquet")
    frame(20)[:0].to_parquet(folder / "nobody.parquet")
    pd.DataFrame({"name": ["a", "b"]}).to_parquet(folder / "words.parquet")
    pd.DataFrame({"count": pd.array([1, None], dtype="Int64")}).to_parquet(folder / "gaps.parquet")
    (folder / "text.parquet").write_text("no")
    return folder


def test_what_is_too_many_for_one_place_or_on_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.linear.blocks.MOST_DRAWN", 1000)
    with pytest.raises(InputError, match="poisson batches draw a number for each in one place, of at most 1000"):
        trained(batches=lethe.batches.Poisson(100))
    monkeypatch.setattr(rows_of_users, "MOST_USERS", 299)
    with pytest.raises(InputError, match="users: there are 300; a table in blocks takes 2 to 299"):
        ridge(users="person")
    monkeypatch.setattr(Linear, "arithmetic", lambda described: (torch.float64, torch.device("cuda")))
    with pytest.raises(InputError, match="device: got cuda; a table in blocks is computed where its blocks are read, on the CPU"):
        trained()
