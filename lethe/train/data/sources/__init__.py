"""Data sources: a public number of records, and the rows of any of them on request."""
