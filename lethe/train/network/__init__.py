"""Network training besides gradients: noise, proximal steps, and an estimate of curvature.

Everywhere the point is the concatenation of all parameters, unless a group says otherwise.
"""
