"""Maps the shapes an answer may have onto one.

Accepted are the canonical answer; the two older ones of ADR-041 (`analysis_summary`, `root_cause_assessment`,
`rca_severity` with `selected_workflow` or `strategies`); the safety document's `recommendations`; the
recovery answer with `recovery_analysis.current_rca`; flat ones; and each of them in snake_case or camelCase.
Flags that code decides (`is_actionable`, `differs_from_previous`) are never read. A flag that asks for a
human counts only when it is set.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.answers.answer import Answer, AnsweredClaim, AnsweredWorkflow, ProblemKind
from worker.domain.verdict.answers.fields import (
    MAX_ITEMS,
    Contradiction,
    Fields,
    Reading,
    clear_confidence,
    is_nothing,
    plain,
    single,
    snake,
    unwrapped,
)
from worker.domain.verdict.answers.workflow import SELECTED, read_choice, states_choice

_RCA = ("rootcauseanalysis", "rca")
_RCA_TEXT = ("rcasummary", "rootcausesummary", "rootcauseassessment", "analysissummary", "rootcause")
_CURRENT_RCA = ("currentrca", "rootcauseanalysis")
_AFFECTED = ("affectedresource", "affectedobject")
_TARGET = ("remediationtarget", "targetresource", "affectedresources")
_OWN_CONFIDENCE = ("confidence", "analysisconfidence")
_HUMAN_FLAGS = (
    "needshumanreview", "requireshumanreview", "humanreviewrequired", "humanreview", "humanreviewreason",
    "requiresapproval", "approvalrequired", "approval",
)  # fmt: skip
_TARGET_PATH = "root_cause_analysis.affectedResource"
_NO_NAMESPACE = frozenset({"null", "none", "n/a", "<none>", "-"})
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_CHAIN = ("causalchain", "causalclaims", "chainofcauses")
_CLAIM_TEXT = ("claim", "statement", "text", "step", "cause", "description", "summary")
_CLAIM_IDS = ("evidence", "evidenceids", "evidenceid", "cites", "citations", "sources", "ids")
_CHAIN_PATH = "root_cause_analysis.causal_chain"
_EVIDENCE_ID = re.compile(r"(?<![A-Za-z0-9])[Ee]([0-9]{1,6})(?![A-Za-z0-9])")
_IN_BRACKETS = re.compile(r"[(\[]\s*(?:see\s+)?E[0-9]{1,6}(?:(?:\s*[,;&]\s*|\s+and\s+)E[0-9]{1,6})*\s*[)\]]")


class AnswerShape(enum.Enum):
    """The kind of an object.

    FRAGMENT names a workflow without a root cause; UNDECIDED has a cause and no choice.
    """

    ANSWER = enum.auto()
    UNDECIDED = enum.auto()
    FRAGMENT = enum.auto()
    OTHER = enum.auto()


def shape_of(value: Any) -> AnswerShape:
    """The shape of a value that was read from the text."""
    root = Fields(value)
    try:
        decided = states_choice(root)
        if _is_template(root):
            return AnswerShape.OTHER
        if _has_cause(root):
            return AnswerShape.ANSWER if decided else AnswerShape.UNDECIDED
        if decided and not is_nothing(root.get("summary")) and root.states(*_AFFECTED):
            return AnswerShape.ANSWER
        return AnswerShape.FRAGMENT if root.states(*SELECTED[:3]) else AnswerShape.OTHER
    except Contradiction:
        return AnswerShape.ANSWER


def to_answer(value: Mapping[str, Any], notes: tuple[str, ...] = ()) -> Answer:
    """The answer an object holds, without prose.

    Raises:
        Contradiction: when the object says two different things where one counts.

    """
    root, reading = Fields(unwrapped(value)), Reading()
    reading.notes.extend(notes)
    recovery = Fields(root.get("recoveryanalysis"))
    causes = [
        Fields(_as_cause(single(raw, "the root cause analysis"))) for raw in _raw_causes(root, recovery)
    ]
    choice = read_choice(root, reading)
    return Answer(
        summary=_summary(causes, root, reading),
        severity=reading.name(_first([*causes, root], "severity", "rcaseverity"), "severity"),
        signal_type=reading.name(_signal_type(causes, root, recovery), "signal_type"),
        contributing_factors=reading.texts(
            _first([*causes, root], "contributingfactors"), "contributing_factors"
        ),
        causal_chain=read_claims([*causes, root], reading),
        affected_resource=_affected([*causes, root], reading),
        selected_workflow=_no_surer(choice.selected, [root, *causes], reading),
        workflow_stated=choice.stated,
        alternatives=choice.others,
        outcome=snake(reading.name(root.get("investigationoutcome", "outcome"), "investigation_outcome")),
        rationale=reading.text(root.get("rationale", "reasoning"), "rationale") or choice.rationale,
        confidence=_own_confidence(causes, root, reading, chosen=choice.selected is not None),
        asks_for_human=any(_is_said(source.get(name)) for source in (root, *causes) for name in _HUMAN_FLAGS),
        warnings=reading.texts(root.get("warnings"), "warnings"),
        context_used=_context(root.get("contextused"), reading),
        recovery_analysis=_recovery_tree(root.get("recoveryanalysis"), "recovery_analysis", reading),
        recovery_strategy=_recovery_tree(root.get("recoverystrategy"), "recovery_strategy", reading),
        notes=tuple(dict.fromkeys(reading.notes)),
        problems=tuple(reading.problems),
    )


def _is_template(root: Fields) -> bool:
    """True if the object repeats the form of an answer, with all severities where one belongs."""
    cause = Fields(root.get(*_RCA))
    severity = cause.get("severity") or root.get("rcaseverity", "severity")
    return isinstance(severity, str) and "|" in severity


def _has_cause(root: Fields) -> bool:
    recovery = Fields(root.get("recoveryanalysis"))
    return not (is_nothing(root.get(*_RCA, *_RCA_TEXT)) and is_nothing(recovery.get(*_CURRENT_RCA)))


def _raw_causes(root: Fields, recovery: Fields) -> list[Any]:
    """Every object that describes the cause; the answer's own comes before the recovery analysis."""
    cause = root.get("rootcause")
    found = [root.get(*_RCA), cause if isinstance(cause, Mapping) else None, recovery.get(*_CURRENT_RCA)]
    return [raw for raw in found if raw is not None]


def _as_cause(raw: Any) -> Any:
    return {"summary": raw} if isinstance(raw, str) else raw


def _first(sources: list[Fields], *names: str) -> Any:
    values = (source.get(*names) for source in sources)
    return next((value for value in values if value is not None), None)


def _summary(causes: list[Fields], root: Fields, reading: Reading) -> str:
    own = _first(causes, "summary", "rootcause", "description")
    if own is None:
        parts = [root.get(name) for name in _RCA_TEXT]
        texts = [part.strip() for part in parts if isinstance(part, str) and part.strip()]
        own = " ".join(dict.fromkeys(texts)) or root.get("summary")
    return reading.text(own, "root_cause_analysis.summary")


def _signal_type(causes: list[Fields], root: Fields, recovery: Fields) -> Any:
    assessment = Fields(recovery.get("previousattemptassessment"))
    stated = _first([*causes, root], "signaltype", "rcasignaltype")
    return stated if stated is not None else _first([root, recovery, assessment], "currentsignaltype")


def _own_confidence(causes: list[Fields], root: Fields, reading: Reading, *, chosen: bool) -> float | None:
    value = _first([root, *causes], *_OWN_CONFIDENCE)
    if chosen:
        # The workflow's own confidence counts then, so an unreadable one here does no harm.
        return Reading().confidence(value, "confidence", ProblemKind.RCA)
    return reading.confidence(value, "confidence", ProblemKind.RCA)


def _no_surer(
    chosen: AnsweredWorkflow | None, sources: list[Fields], reading: Reading
) -> AnsweredWorkflow | None:
    """The workflow, with the lowest confidence among those of the answer's parts."""
    if chosen is None or chosen.confidence is None:
        return chosen
    stated = (clear_confidence(source.get(*_OWN_CONFIDENCE)) for source in sources)
    lowest = min((value for value in stated if value is not None), default=chosen.confidence)
    if lowest >= chosen.confidence:
        return chosen
    reading.notes.append(
        f"the answer's own confidence {lowest:g} is lower than the workflow's: the lower one is used"
    )
    return replace(chosen, confidence=lowest)


def _is_said(value: Any) -> bool:
    """True if a flag is set: any value but a clear no."""
    if isinstance(value, Mapping):
        fields = Fields(value)
        return _is_said(fields.get("required", "needed"))
    no = isinstance(value, str) and plain(value) in {"false", "no", "notrequired", "notneeded"}
    return not (no or is_nothing(value) or value is False or value == 0)


def _affected(sources: list[Fields], reading: Reading) -> ObjectRef | None:
    """The object the answer blames. If it names no affected resource, a remediation target counts."""
    stated = [value for source in sources if (value := source.get(*_AFFECTED)) is not None]
    if not stated:
        target = _first(sources, *_TARGET)
        stated = [] if target is None else [target]
    targets = {_target(value, reading) for value in stated} - {None}
    if len(targets) > 1:
        reading.problem(ProblemKind.RCA, _TARGET_PATH, "names two different objects: name one.")
        return None
    return targets.pop() if targets else None


def _target(value: Any, reading: Reading) -> ObjectRef | None:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if is_nothing(value):
        return None
    if isinstance(value, str):
        parts = _split_target(value)
    elif isinstance(value, Mapping):
        fields = Fields(value)
        parts = {
            "kind": fields.get("kind", "resourcekind"),
            "name": fields.get("name", "resourcename"),
            "namespace": fields.get("namespace", "resourcenamespace"),
            "api_version": fields.get("apiversion", "resourceapiversion"),
        }
    else:
        parts = None
    if parts is None:
        message = "must be one object with kind, name and namespace."
        reading.problem(ProblemKind.RCA, _TARGET_PATH, message)
        return None
    words = {key: reading.name(part, _TARGET_PATH) for key, part in parts.items()}
    if words.get("namespace", "").lower() in _NO_NAMESPACE:
        words["namespace"] = ""
    return ObjectRef(**{"kind": "", "name": "", **words})


def _split_target(text: str) -> dict[str, Any] | None:
    """The parts of `namespace/Kind/name` or `Kind/name`.

    `namespace/group/Kind/name` (ADR-041) and `Kind/namespace/name` are read, too.
    """
    parts = [part.strip() for part in text.strip().split("/")]
    if not all(parts) or any(" " in part for part in parts):
        return None
    if len(parts) == 2:
        return {"kind": parts[0], "name": parts[1]}
    if len(parts) == 4:
        return {"namespace": parts[0], "kind": parts[2], "name": parts[3]}
    if len(parts) != 3:
        return None
    if _KIND.fullmatch(parts[0]):
        return {"kind": parts[0], "namespace": parts[1], "name": parts[2]}
    return {"namespace": parts[0], "kind": parts[1], "name": parts[2]}


def _context(value: Any, reading: Reading) -> dict[str, str]:
    entries = reading.tree(value, "context_used") if isinstance(value, Mapping) else {}
    return {key: reading.text(item, f"context_used.{key}") for key, item in entries.items()}


def _recovery_tree(value: Any, what: str, reading: Reading) -> dict[str, Any] | None:
    if isinstance(value, str) and value.strip():
        value = {"approach" if what == "recovery_strategy" else "summary": value}
    if not isinstance(value, Mapping) or not value:
        return None
    tree: dict[str, Any] = reading.tree(value, what)
    tree.pop("differs_from_previous", None)
    return tree


def read_claims(sources: list[Fields], reading: Reading) -> tuple[AnsweredClaim, ...]:
    """The causal chain in the first of the objects that has one.

    A step is an object with a claim and ids, or a sentence, which may cite ids in brackets: `The pod was
    killed (E3, E5).`
    """
    found = next((value for source in sources if not is_nothing(value := source.get(*_CHAIN))), None)
    items = found if isinstance(found, list) else [] if found is None else [found]
    if len(items) > MAX_ITEMS:
        reading.notes.append(f"{_CHAIN_PATH} was cut at {MAX_ITEMS} items")
    claims = (_claim(item, reading) for item in items[:MAX_ITEMS])
    return tuple(claim for claim in claims if claim.text)


def _claim(item: Any, reading: Reading) -> AnsweredClaim:
    fields = Fields(item if isinstance(item, Mapping) else {"claim": item})
    text, cited = reading.text(fields.get(*_CLAIM_TEXT), _CHAIN_PATH), fields.get(*_CLAIM_IDS)
    return AnsweredClaim(text, _ids(_IN_BRACKETS.findall(text) if cited is None else _texts(cited)))


def _texts(value: Any) -> Iterator[str]:
    """The texts of a value: itself, or those of its items; an item may be an object with an id."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(Fields(value).get("id", *_CLAIM_IDS))
    elif isinstance(value, list):
        for item in value[:MAX_ITEMS]:
            yield from _texts(item)


def _ids(texts: Iterable[str]) -> tuple[str, ...]:
    found = (f"E{int(number)}" for text in texts for number in _EVIDENCE_ID.findall(text))
    return tuple(dict.fromkeys(found))[:MAX_ITEMS]
