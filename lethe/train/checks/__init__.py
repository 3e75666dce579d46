"""Checks of models, losses and padded batches, beside the clipper's self-check."""
