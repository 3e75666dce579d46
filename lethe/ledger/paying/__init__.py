"""What pays for releases: the spender of trainings and fits, of releases by hand, and of whatever is fitted within a block."""
