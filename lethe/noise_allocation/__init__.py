"""Where the noise goes: how a privacy budget is best divided over the steps of a run."""
