"""Features of records that need no privacy: each record by itself, by numbers that no record was read for."""
