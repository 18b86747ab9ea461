"""Roth et al. 2020: objectives, the rho switch, samplers, parameters, correlations."""
