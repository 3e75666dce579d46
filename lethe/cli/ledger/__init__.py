"""The verbs of `lethe ledger`."""
