"""Private estimators for features and targets with heavy tails or outliers."""
