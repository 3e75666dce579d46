"""Private quantiles: by the exponential mechanism, and by noisy bisection of a public grid."""
