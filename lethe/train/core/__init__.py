"""What all training shares: batches, noise, projections, and the record of what was executed."""
