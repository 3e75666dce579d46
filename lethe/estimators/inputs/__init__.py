"""What estimators accept: tables, targets, weights, and the ranges released where no public ones are known."""
