"""Tables in blocks: Parquet files, .npy files, arrays and Dask collections, of which mechanisms read sums over records.

table = lethe.partitions.parquet_table("people/*.parquet")
model = lethe.estimators.LogisticRegression(epsilon=1.0, feature_norm=5.0).fit(table, "label")
"""

from lethe.partitions.dask_tables import dask_table
from lethe.partitions.files import array_table, parquet_table

__all__ = ["array_table", "dask_table", "parquet_table"]
