"""The Gaussian mechanism on sampled batches: privacy profiles, Rényi curves and privacy losses."""
