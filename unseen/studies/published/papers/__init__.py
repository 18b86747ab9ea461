"""The published studies, one file each: `unseen study published NAME`; see `published/study.py`."""
