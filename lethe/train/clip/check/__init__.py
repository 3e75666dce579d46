"""The one check of training: some records alone against their part of a batch."""
