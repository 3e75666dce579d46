"""Data at scale: sources that need not fit in memory, and the batches of a run read from them.

Which records meet which step comes from the Run alone, since that is part of the privacy guarantee.
"""

from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.loaders import as_source
from lethe.train.data.map_style import MapStyleSource
from lethe.train.data.sources import Source, TensorSource
