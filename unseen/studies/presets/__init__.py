"""The published studies, one file each: `unseen study preset NAME`; see `studies/preset.py`."""
