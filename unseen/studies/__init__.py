"""Comparisons of many runs: plan, engine, tables, tournament, correlation, report."""
