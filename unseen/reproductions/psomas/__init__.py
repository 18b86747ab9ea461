"""Psomas 2020, the thesis: ten losses, protocols, linear metrics."""
