"""Data at scale: sources that need not fit in memory, and the batches of a run read from them.

`BatchStream` turns a Run and a data source into loaded batches of any of the seven designs; which records meet which step comes from the
Run alone, since that is part of the privacy guarantee.
"""

from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.draws import shard
from lethe.train.data.sources.arrays import TensorSource
from lethe.train.data.sources.base import Source
from lethe.train.data.sources.map_style import MapStyleSource
from lethe.train.data.sources.pad_to import PadTo
from lethe.train.data.sources.parquet import ParquetSource
from lethe.train.data.sources.recognise import as_source

__all__ = [
    "BatchStream",
    "LoadedBatch",
    "MapStyleSource",
    "PadTo",
    "ParquetSource",
    "Source",
    "TensorSource",
    "as_source",
    "shard",
]
