"""Hong, Wang and Zhou 2022, Figure 1."""
