"""The pieces of `answer.py`: how the text of a model becomes an answer, without guessing."""
