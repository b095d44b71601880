"""How the text of a model becomes an answer. `parse.py` is the entry."""
