"""One run from data to score: train, select on validation classes, read the test classes once."""
