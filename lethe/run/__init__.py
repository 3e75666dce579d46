"""The specification of a training run: batches, loss, regularisers, schedules and noise."""
