"""Li et al. 2020: density adaptivity."""
