"""Removing secrets from text. `redact.py` is the entry; the other modules say what secrets look like."""
