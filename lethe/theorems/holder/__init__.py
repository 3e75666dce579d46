"""Steps of losses with a Hölder gradient: how far apart they take two iterates, and what a path of distances costs."""
