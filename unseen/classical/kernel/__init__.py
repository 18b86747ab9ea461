"""Non-linear versions of the linear metrics."""
