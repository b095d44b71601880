"""The prompt: the system text, and the first user turn with its sections.

The order is fixed so that providers can cache the prefix: tools (constant, sorted), the system text (constant
for a kind of request: no id, time or cluster name in it), the incident as the first user turn, then history
that only grows.

Prohibited input (root causes, confidences, pre-selected strategies; ADR-041 "Input Principle") cannot get in:
the sections take typed facts only, and no type has a field for it.
"""

from worker.domain.investigation.prompt.incident import PromptFacts, opening_turn
from worker.domain.investigation.prompt.system import PROMPT_VERSION, SYSTEM_TEXT

__all__ = ["PROMPT_VERSION", "SYSTEM_TEXT", "PromptFacts", "opening_turn"]
