"""The pieces of `redact.py`: what secrets look like, and what only looks like one."""
