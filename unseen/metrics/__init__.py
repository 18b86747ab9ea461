"""How good an embedding is, given labels. One file, one class, one name; base.py says the kinds."""
