"""Linear models and heads on tables in blocks: what is done to each block where it is read, and what training sees of it, sums."""
