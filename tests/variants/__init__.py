"""Variants of the known incidents (metamorphic tests): what may change in an incident without changing its verdict.

A mutation takes the content of a case and gives a changed copy, or None where it does not apply. It states what must
stay true (`Keeps`):

- Preserving: the verdict follows. The analyst blames the same object (under its new name or kind), gives a signal type
  and a workflow that the case accepts, and ends as before.
- Weakening: what the verdict needs may be gone. The analyst may be silent, but not wrong: it chooses no workflow that
  the case does not accept, and does not call the problem resolved.

Everything is drawn from a generator that is seeded by the names of case and mutation, so a variant is the same on every
machine. `tests/eval_variants.py` scores them.
"""
