"""Private selection: the best of a secret random number of tries."""
