"""The search page and its JSON interface: one process or several over one memory-mapped index."""
