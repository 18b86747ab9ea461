"""Unseen: deep metric learning that is judged on classes it has never seen."""
