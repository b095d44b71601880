"""The pieces of `verdict.py` and `policy.py`: everything an answer is checked for."""
