"""Removes secrets from text. `redact.py` is the entry; the other modules describe the forms of secrets."""
