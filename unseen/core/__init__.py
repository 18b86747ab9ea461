"""What everything else rests on: contracts, tensors, tuples, statistics, files, components by
name."""
