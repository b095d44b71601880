"""The tools behind the names in `tools.py`: what each reads and what the model is shown of it."""
