"""What is stated of a run: findings, certificates, comparisons, and the seals that bind them to weights."""
