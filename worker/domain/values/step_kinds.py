"""The kinds of journal steps.

The values are stored: a kind keeps its value as long as journals may contain it.
"""

BEGIN, CLAIM, END = "begin", "claim", "end"
"""A run begins; a paid call is about to be made; a run ends in an orderly way."""

OPENING, LLM, TRIED, TOOLS, SHADOW = "opening", "llm", "tried", "tools", "shadow"
"""The first user turn, a reply of the model, a failed call of it, a turn of tool results, a reply of the
second model.
"""

RESULT, DEAD_LETTERED = "result", "buried"
"""The finished result; the `failed` result of a dead letter."""

FINISHED = "finished"
"""The result is stored, and this is the only step that is left.

Names the message and the digest of the request.
"""

MODEL_OUTAGE = "model_outage"
"""The reason of an END step: no call of the model succeeded, whichever request made it."""

UNREADABLE = "unreadable"
"""Represents a step that is gone or that this version cannot read; the note `why` says more."""
