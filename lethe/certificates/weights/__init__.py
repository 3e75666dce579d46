"""Released weights: what identifies them, whatever file they are kept in."""
