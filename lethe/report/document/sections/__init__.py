"""The sections of a report, one file each, in the order in which they are read."""
