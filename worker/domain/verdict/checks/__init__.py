"""Everything an answer is checked for."""
