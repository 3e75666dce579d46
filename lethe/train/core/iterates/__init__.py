"""What is done to an iterate besides the gradient: averages of a pass, proximal steps, projections, and the norm it is kept within."""
