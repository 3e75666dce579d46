"""How gradients of single records are told: by records themselves, one after the other."""
