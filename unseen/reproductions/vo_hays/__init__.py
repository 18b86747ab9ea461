"""Vo and Hays 2019: which layer serves unseen classes."""
