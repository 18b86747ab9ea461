"""Exact nearest neighbours without labels: for evaluation, diagnostics and search."""
