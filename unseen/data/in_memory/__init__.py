"""Data that a program brings itself: objects of other libraries as data sets of ours."""
