"""The shift engine: the privacy of the last iterate of a noisy iteration, for any Lipschitz constants."""
