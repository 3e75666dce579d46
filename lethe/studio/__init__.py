"""The planner that `lethe studio` opens in a browser: what every choice of a run costs, as it is made."""
