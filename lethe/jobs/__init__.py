"""What the command runs from a configuration: training, audits, and the demonstration."""
