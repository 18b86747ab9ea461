"""How methods hold up as classes become stranger: `unseen study preset generalisation`."""
