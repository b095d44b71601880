"""Why an answer that finds nothing to do needs a person all the same: nobody else will look at the incident again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from schemas.safety import SafetyContext
from worker.domain.enrichment.enrich import FirstLook
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.approval.factors import FactorCode, factor, sentence, sentences
from worker.domain.verdict.checks.targets import ResolvedObject
from worker.domain.verdict.verdict import NOTHING_TO_DO, Accepted, Verdict

SHOWN_TROUBLE, SHOWN_CHARS = 3, 80
SHOWN_BY_STATE = re.compile(
    r"oom|crash|back-?off|image|pull|evict|ready|pending|schedul|mount|replica|rollout|deadline|health|terminat|restart|job|node|pod"
    r"|container|volume|claim|pvc|hpa|daemonset|statefulset|deployment",
    re.IGNORECASE,
)
"""Signals whose end the state of objects shows. Of others (error rates, latencies) a healthy pod proves nothing."""


def doubts(
    verdict: Verdict | None,
    affected: ResolvedObject | None,
    look: FirstLook,
    signal: ObjectRef,
    safety: SafetyContext | None,
    signal_type: str,
) -> tuple[str, ...]:
    """Reasons against believing that there is nothing to do; none for an answer that says something else.

    `affected` is the blamed object with its owners, `signal` the resource the request is about,
    `signal_type` what it reports of it.
    """
    if (
        not isinstance(verdict, Accepted)
        or verdict.workflow is not None
        or verdict.outcome not in NOTHING_TO_DO
    ):
        return ()
    return (
        *_own_doubts(verdict),
        *_elsewhere(verdict, affected, look, signal),
        *_seen(look),
        *_unseen(signal_type),
        *_demanded(safety),
    )


def _own_doubts(accepted: Accepted) -> Iterator[str]:
    if accepted.confidence is None:
        yield "the answer states no confidence"
    if accepted.unverified:
        yield f"it could not be verified that {accepted.affected} exists"
    yield from sentences(accepted.approval_factors)
    yield from (f"the answer warns: {warning}" for warning in accepted.warnings)


def _elsewhere(
    accepted: Accepted, affected: ResolvedObject | None, look: FirstLook, signal: ObjectRef
) -> Iterator[str]:
    """An object that has nothing to do with the signal's resource says nothing about it."""
    owners = affected.chain if affected else ()
    related = any(accepted.affected.same_as(member) for member in (signal, *look.chain))
    if not related and not any(signal.same_as(owner) for owner in owners):
        yield f"the answer speaks of {accepted.affected}, the signal of {signal}"


def _seen(look: FirstLook) -> Iterator[str]:
    if look.trouble:
        more = len(look.trouble) - SHOWN_TROUBLE
        shown = ", ".join(look.trouble[:SHOWN_TROUBLE])
        yield f"in trouble at the first look: {shown}{f' and {more} more' if more > 0 else ''}"
    if look.unread:
        yield f"the first look could not read: {', '.join(look.unread)}"


def _unseen(signal_type: str) -> Iterator[str]:
    if SHOWN_BY_STATE.search(signal_type) is None:
        yield f"the state of the cluster does not show whether {one_line(signal_type, SHOWN_CHARS)} is over"


def _demanded(safety: SafetyContext | None) -> Iterator[str]:
    if safety is not None and safety.safety_constraints.requires_approval:
        yield sentence(factor(FactorCode.SAFETY_REQUIRES_APPROVAL))
    if safety is not None and safety.rego_policy.dry_run:
        yield sentence(factor(FactorCode.SAFETY_DRY_RUN))
