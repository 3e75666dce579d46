"""Private linear models: classifiers and regressors."""
