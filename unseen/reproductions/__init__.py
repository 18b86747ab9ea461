"""Reproductions of five papers: a folder each, whose studies `unseen study published` runs."""
