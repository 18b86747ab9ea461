"""Linear metrics fitted on frozen features: cheap baselines. One file, one class, one name."""
