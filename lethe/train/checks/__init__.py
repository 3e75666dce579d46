"""Checks around training: what a model, a loss or padded batches could do that no certificate knows of."""
