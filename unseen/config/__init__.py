"""The settings of a run: the schema, what "auto" resolves to, and objects built from settings."""
