"""Tables of Dask, and passes on its clusters."""
