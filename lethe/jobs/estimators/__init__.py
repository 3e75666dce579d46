"""Models that `lethe train` trains with `lethe.estimators`, as they are asked for, trained and saved."""
