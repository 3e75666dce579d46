"""Published bounds, one file a paper, as the paper states them; what is wrong with some of them is said where it stands."""
