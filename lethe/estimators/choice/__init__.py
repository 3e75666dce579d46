"""Which mechanism trains an estimator, and how it trains."""
