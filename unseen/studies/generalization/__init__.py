"""How methods hold up as the distribution shifts: `unseen study preset generalization`."""
