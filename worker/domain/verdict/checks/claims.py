"""Checks of the causal chain: whether the evidence that a step cites exists, and whether it shows the state that it names.

Only what can be decided from structure is decided: a step that names a state of Kubernetes, such as OOMKilled, against the
reasons that the cluster reports in the cited evidence. Everything else is for humans to read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from schemas.evidence import CausalClaim, ClaimSupport
from schemas.taxonomy import SignalType
from worker.domain.untrusted.evidence import one_line
from worker.domain.verdict.answers.answer import AnsweredClaim
from worker.domain.verdict.checks.evidence import is_reported
from worker.domain.verdict.checks.report import CheckReport

SHOWN_CHARS: Final = 120
NAMED: Final = {name: re.compile(rf"(?<![\w-]){name}(?![\w-])") for name in SignalType}
DENIED: Final = re.compile(
    r"\b(?:not?|never|without|neither|nor|instead of|rather than|\w+n['’]t)\b", re.IGNORECASE
)
"""Words with which a sentence may say that a state is absent."""


def check_claims(
    chain: tuple[AnsweredClaim, ...], reported_by: Mapping[str, frozenset[str] | None], report: CheckReport
) -> tuple[CausalClaim, ...]:
    """Check each step. `reported_by` has the reasons that each piece of evidence reports, by its id.

    The reasons are None for evidence that cannot decide: free text, or what was cut.
    """
    return tuple(_checked(claim, reported_by, report) for claim in chain)


def _checked(
    claim: AnsweredClaim, reported_by: Mapping[str, frozenset[str] | None], report: CheckReport
) -> CausalClaim:
    cited = tuple(id_ for id_ in claim.evidence if id_ in reported_by)
    if unknown := [id_ for id_ in claim.evidence if id_ not in reported_by]:
        shown = one_line(", ".join(unknown), SHOWN_CHARS)
        report.warnings.append(f"The causal chain cites {shown}, which is not in the evidence.")
    support = _support(claim.text, [reported_by[id_] for id_ in cited])
    if support is ClaimSupport.NOT_SHOWN:
        shown = one_line(claim.text, SHOWN_CHARS)
        report.warnings.append(f"The evidence that the causal chain cites does not show this: {shown}")
    return CausalClaim(claim=claim.text, evidence=cited, support=support)


def _support(text: str, reasons: list[frozenset[str] | None]) -> ClaimSupport:
    if not reasons:
        return ClaimSupport.UNCITED
    states = () if DENIED.search(text) else [name for name, named in NAMED.items() if named.search(text)]
    reported = frozenset[str]().union(*(found for found in reasons if found is not None))
    missing = [state for state in states if not is_reported(state, reported)]
    if states and not missing:
        return ClaimSupport.SHOWN
    return ClaimSupport.NOT_SHOWN if missing and None not in reasons else ClaimSupport.CITED
