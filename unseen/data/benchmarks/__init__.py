"""What benchmarks share: the counts they are checked against, and their layouts on disk."""
