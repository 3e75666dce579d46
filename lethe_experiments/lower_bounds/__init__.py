"""Lower bounds of the excess risk that no private algorithm can beat."""
