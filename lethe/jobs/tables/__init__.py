"""Tables with columns of numbers and words, and what everybody knows of each column."""
