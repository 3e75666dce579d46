"""`lethe audit`: from a configuration to a certificate and audits of it, side by side."""
