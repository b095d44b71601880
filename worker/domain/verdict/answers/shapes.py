"""Maps the shapes an answer may have onto one.

Accepted are the canonical answer; the two older ones of ADR-041 (`analysis_summary`, `root_cause_assessment`,
`rca_severity` with `selected_workflow` or `strategies`); the safety document's `recommendations`; the
recovery answer with `recovery_analysis.current_rca`; flat ones; and each of them in snake_case or camelCase.
Flags that code decides (`is_actionable`, `differs_from_previous`) are never read. Several names of one field,
or several places of it, must agree. A request for a human counts wherever it stands.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from worker.domain.cluster.kinds import canonical_kind
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.answers.answer import Answer, AnsweredClaim, AnsweredWorkflow, ProblemKind
from worker.domain.verdict.answers.fields import (
    MAX_ITEMS,
    VALUES,
    Contradiction,
    Fields,
    Reading,
    agreed_in,
    is_nothing,
    plain,
    single,
    snake,
    unwrapped,
)
from worker.domain.verdict.answers.workflow import CONFIDENCE, RATIONALE, SELECTED, read_choice, states_choice

_RCA = ("rootcauseanalysis", "rca")
_CAUSE_TEXT = ("rcasummary", "rootcausesummary", "rootcauseassessment", "rootcause")
_ANALYSIS_TEXT = ("analysissummary", "summary")
_CURRENT_RCA = ("currentrca", "rootcauseanalysis")
_AFFECTED = ("affectedresource", "affectedobject", "affectedresources", "remediationtarget", "targetresource")
_ASKS_FOR_HUMAN = re.compile(
    "approval|human(?:review|intervention|decision|needed|required)|(?:needs?|requires?)human"
)
_CLEAR_NO = frozenset({"false", "no", "notrequired", "notneeded"})
_LEVELS = {"critical", "high", "medium", "low"}
_SAYS_NOTHING = VALUES | {"alternativeworkflows", "alternatives"}
_TARGET_PATH = "root_cause_analysis.affectedResource"
_NO_NAMESPACE = frozenset({"null", "none", "n/a", "<none>", "-"})
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_CHAIN = ("causalchain", "causalclaims", "chainofcauses")
_CLAIM_TEXT = ("claim", "statement")
_CLAIM_IDS = ("evidence", "evidenceids")
_CHAIN_PATH = "root_cause_analysis.causal_chain"
_EVIDENCE_ID = re.compile(r"(?<![A-Za-z0-9])[Ee]([0-9]{1,6})(?![A-Za-z0-9])")
_IN_BRACKETS = re.compile(r"[(\[]\s*(?:see\s+)?E[0-9]{1,6}(?:(?:\s*[,;&]\s*|\s+and\s+)E[0-9]{1,6})*\s*[)\]]")


class AnswerShape(enum.Enum):
    """The kind of an object.

    FRAGMENT is a part of an answer: a cause, a choice of a workflow, or a request for a human.
    """

    ANSWER = enum.auto()
    FRAGMENT = enum.auto()
    OTHER = enum.auto()


def shape_of(value: Any) -> AnswerShape:
    """The shape of a value that was read from the text."""
    root = Fields(value)
    try:
        decided = states_choice(root)
        if _is_template(root):
            return AnswerShape.OTHER
        caused = _has_cause(root)
        if decided and (caused or (root.states(*_AFFECTED) and not is_nothing(root.get("summary")))):
            return AnswerShape.ANSWER
        asks = isinstance(value, Mapping) and any(_asks(key, item) for key, item in value.items())
        return AnswerShape.FRAGMENT if caused or asks or root.states(*SELECTED[:3]) else AnswerShape.OTHER
    except Contradiction:
        return AnswerShape.ANSWER


def to_answer(value: Mapping[str, Any], *, submitted: bool = False) -> Answer:
    """The answer an object holds, without prose.

    The form of `submit_result` requires a confidence of the answer. Older forms in text have only the one of
    the workflow, which then counts for both.

    Raises:
        Contradiction: when the object says two different things where one counts.

    """
    value = unwrapped(value)
    root, reading = Fields(value), Reading()
    recovery = Fields(root.get("recoveryanalysis"))
    raw_causes = _raw_causes(root, recovery)
    causes = [Fields(_as_cause(single(raw, "the root cause analysis"))) for raw in raw_causes]
    sources = [*causes, root]
    choice = read_choice(root, reading)
    confidence = reading.confidence(agreed_in(sources, *CONFIDENCE), "confidence")
    if choice.selected and not submitted and not any(source.states(*CONFIDENCE) for source in sources):
        confidence = choice.selected.confidence
        reading.notes.append("confidence was missing: that of selected_workflow is used")
    return Answer(
        summary=_summary(causes, root, reading),
        severity=reading.name(agreed_in(sources, "severity", "rcaseverity"), "severity"),
        signal_type=reading.name(_signal_type(sources, recovery), "signal_type"),
        contributing_factors=_factors(sources, reading),
        causal_chain=read_claims(agreed_in(sources, *_CHAIN), reading),
        affected_resource=_affected(sources, reading),
        selected_workflow=_no_surer(choice.selected, confidence, reading),
        workflow_stated=choice.stated,
        alternatives=choice.others,
        outcome=snake(reading.name(root.get("investigationoutcome", "outcome"), "investigation_outcome")),
        rationale=reading.prose(root.entries("rationale", "reasoning"), "rationale") or choice.rationale,
        confidence=confidence,
        asks_for_human=asks_for_human(value),
        warnings=reading.texts(root.get("warnings"), "warnings"),
        context_used=_context(root.get("contextused"), reading),
        recovery_analysis=_recovery_tree(root.get("recoveryanalysis"), "recovery_analysis", reading),
        recovery_strategy=_recovery_tree(root.get("recoverystrategy"), "recovery_strategy", reading),
        notes=tuple(dict.fromkeys(reading.notes)),
        problems=tuple(reading.problems),
    )


def _is_template(root: Fields) -> bool:
    """True if the object repeats the form of an answer, with all severities where one belongs."""
    severity = agreed_in((Fields(root.get(*_RCA)), root), "severity", "rcaseverity")
    words = severity.lower().split("|") if isinstance(severity, str) else ()
    return {word.strip() for word in words} >= _LEVELS


def _has_cause(root: Fields) -> bool:
    recovery = Fields(root.get("recoveryanalysis"))
    told = root.entries(*_RCA, *_CAUSE_TEXT, "analysissummary") + recovery.entries(*_CURRENT_RCA)
    return not all(is_nothing(value) for _, value in told)


def _raw_causes(root: Fields, recovery: Fields) -> list[Any]:
    """Every object that describes the cause; the answer's own comes before the recovery analysis."""
    cause = root.get("rootcause")
    found = [root.get(*_RCA), cause if isinstance(cause, Mapping) else None, recovery.get(*_CURRENT_RCA)]
    return [raw for raw in found if raw is not None]


def _as_cause(raw: Any) -> Any:
    return {"summary": raw} if isinstance(raw, str) else raw


def _summary(causes: list[Fields], root: Fields, reading: Reading) -> str:
    """What the cause says of itself; else the assessment and the summary of the analysis (ADR-041)."""
    told = [entry for entry in root.entries(*_CAUSE_TEXT) if not isinstance(entry[1], Mapping)]
    told += [entry for cause in causes for entry in cause.entries("summary", "rootcause")]
    if not causes or all(is_nothing(value) for _, value in told):
        told += root.entries(*_ANALYSIS_TEXT)
    return reading.prose(told, "root_cause_analysis.summary")


def _factors(sources: list[Fields], reading: Reading) -> tuple[str, ...]:
    """The factors that any of the sources names."""
    what = "contributing_factors"
    lists = (reading.texts(value, what) for source in sources for _, value in source.entries(plain(what)))
    return reading.texts([*dict.fromkeys(text for texts in lists for text in texts)], what)


def _signal_type(sources: list[Fields], recovery: Fields) -> Any:
    stated = agreed_in(sources, "signaltype", "rcasignaltype")
    assessment = Fields(recovery.get("previousattemptassessment"))
    return stated if stated is not None else agreed_in((*sources, recovery, assessment), "currentsignaltype")


def _no_surer(
    chosen: AnsweredWorkflow | None, own: float | None, reading: Reading
) -> AnsweredWorkflow | None:
    """The workflow, with the confidence of the answer if that is lower."""
    if chosen is None or chosen.confidence is None or own is None or own >= chosen.confidence:
        return chosen
    reading.notes.append(
        f"the answer's own confidence {own:g} is lower than the workflow's: the lower one is used"
    )
    return replace(chosen, confidence=own)


def asks_for_human(value: Any) -> bool:
    """True if a field of the answer, at any level, asks for a human to review or approve."""
    if isinstance(value, list):
        return any(asks_for_human(item) for item in value)
    if not isinstance(value, Mapping):
        return False
    return any(
        _asks(key, item) or (plain(key) not in _SAYS_NOTHING and asks_for_human(item))
        for key, item in value.items()
    )


def _asks(key: str, value: Any) -> bool:
    return _ASKS_FOR_HUMAN.search(plain(key)) is not None and not _is_clear_no(value)


def _is_clear_no(value: Any) -> bool:
    """True for null, false, 0, a word of a closed set, and an object with a clear no and otherwise only a reason.

    A text with more words is no clear no, whatever its first one is.
    """
    if isinstance(value, Mapping):
        said = [(plain(key), item) for key, item in value.items()]
        said = [(key, item) for key, item in said if key not in RATIONALE or not isinstance(item, str)]
        required = any(key in {"required", "needed"} or _ASKS_FOR_HUMAN.search(key) for key, _ in said)
        return not value or (required and all(_is_clear_no(item) for _, item in said))
    if isinstance(value, str):
        return value.isascii() and (is_nothing(value) or plain(value) in _CLEAR_NO)
    return not value


def _affected(sources: list[Fields], reading: Reading) -> ObjectRef | None:
    """The object the answer blames, under any of the names for it."""
    stated = [value for source in sources for _, value in source.entries(*_AFFECTED)]
    targets = [target for value in stated if (target := _target(value, reading))]
    parts = zip(*((canonical_kind(t.kind), t.name, t.namespace, t.api_version) for t in targets), strict=True)
    named = [[*dict.fromkeys(filter(None, part))] for part in parts]
    if any(len(part) > 1 for part in named):
        reading.problem(ProblemKind.RCA, _TARGET_PATH, "names two different objects: name one.")
        return None
    return ObjectRef(*("".join(part) for part in named)) if named else None


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


def read_claims(found: Any, reading: Reading) -> tuple[AnsweredClaim, ...]:
    """The causal chain.

    A step is an object with a claim and ids, or a sentence, which may cite ids in brackets: `The pod was
    killed (E3, E5).`
    """
    if is_nothing(found):
        return ()
    claims = (_claim(item, reading) for item in reading.items(found, _CHAIN_PATH))
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
        yield from _texts(Fields(value).get("id"))
    elif isinstance(value, list):
        for item in value[:MAX_ITEMS]:
            yield from _texts(item)


def _ids(texts: Iterable[str]) -> tuple[str, ...]:
    found = (f"E{int(number)}" for text in texts for number in _EVIDENCE_ID.findall(text))
    return tuple(dict.fromkeys(found))[:MAX_ITEMS]
