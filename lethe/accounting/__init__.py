"""The verbs of accounting: certify, plan, compare, verify, and privacy that is spent over time."""
