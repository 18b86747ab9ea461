"""Jacob et al. 2019: HORDE."""
