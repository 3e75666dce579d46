"""Tables and plots of reproductions."""
