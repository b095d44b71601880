"""The evidence of an analysis, and how well it supports each step of the causal chain."""

from __future__ import annotations

import enum
from typing import Final

from schemas.fields import Count, Message, Needed, Text, Timestamp

EXCERPT_BYTES: Final = 2_048
"""The most bytes of UTF-8 that a result keeps of one piece of evidence."""


class EvidenceItem(Message):
    """One piece of evidence."""

    id: Needed
    """`E1`, `E2`, ... in the order of gathering."""
    source: Needed
    """The tool or enrichment step that produced the evidence."""
    summary: Text
    """Heading that says what the evidence covers."""
    seen_at: Timestamp | None = None
    """When the evidence was read; null in results of earlier versions."""
    excerpt: Text = ""
    """At most 2 KiB of its text, with secrets removed: the end of a log, the start of anything else. `...`
    marks a cut. If an earlier piece has the same long text, the excerpt is only
    `same text as E2`."""


class ClaimSupport(enum.StrEnum):
    """How well the evidence supports a step of the causal chain, as checked by code."""

    SHOWN = "shown"
    """It names a state, and the evidence it cites reports this state."""
    CITED = "cited"
    """It cites existing evidence, but code cannot verify it: it names no state, or the evidence is free text
    or was cut."""
    NOT_SHOWN = "not_shown"
    """It names a state that none of the evidence it cites reports."""
    UNCITED = "uncited"
    """It cites no evidence that exists."""


class CausalClaim(Message):
    """One step of the causal chain."""

    claim: Needed
    """The statement of the model."""
    evidence: tuple[Text, ...] = ()
    """Ids of the evidence it cites, without ids that do not exist."""
    support: ClaimSupport
    """How well this evidence supports the claim."""


class AlignmentOutcome(enum.StrEnum):
    """The verdict whether the analysis may have followed planted instructions."""

    CLEAN = "clean"
    """Nothing in the evidence reads like instructions."""
    SUSPICIOUS = "suspicious"
    """Some evidence reads like instructions; nothing shows that the answer followed them."""
    MISALIGNED = "misaligned"
    """A second model that did not see this evidence chose otherwise."""


class AlignmentFinding(Message):
    """A text that reads like instructions."""

    evidence: Needed
    """Id of the evidence, or name of the field of the request."""
    tool: Text = ""
    """The tool or enrichment step that produced the text."""
    explanation: Text
    """The text, with secrets removed."""


class AlignmentVerdict(Message):
    """The result of the check for planted instructions."""

    result: AlignmentOutcome
    """The verdict."""
    summary: Text = ""
    """The verdict in a sentence; may be empty."""
    flagged: Count = 0
    """How many texts read like instructions."""
    total: Count = 0
    """How many texts were checked."""
    findings: tuple[AlignmentFinding, ...] = ()
    """The texts that read like instructions."""
