"""Where pictures and labels come from: one data set per file, the machinery in `pictures`."""
