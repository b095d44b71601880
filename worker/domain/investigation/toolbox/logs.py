"""The tool that reads a container's log: the choice of container, run and part, and how much is shown."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, Field, WithJsonSchema

from worker.domain.cluster.pods import Container, containers, pod_status
from worker.domain.cluster.rendering import logs as rendering
from worker.domain.investigation.toolbox import tool
from worker.domain.investigation.toolbox.cluster import problem_of
from worker.domain.untrusted.evidence import EvidenceKind
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import LogQuery, Manifest, ObjectRef

LOG_BYTES = 256 * 1024
GREP_BYTES = 1024 * 1024
MAX_TAIL_LINES = 2000
DEFAULT_TAIL_LINES = 200


Lines = Annotated[
    int,
    tool.clamped(1, MAX_TAIL_LINES),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_TAIL_LINES}),
]


class GetPodLogs(tool.Arguments):
    """Arguments of get_pod_logs."""

    pod: tool.Name = Field(validation_alias=AliasChoices("pod", "name", "pod_name"))
    namespace: tool.Name
    container: tool.Word = Field(default="", description="empty: the failing one")
    previous: bool = Field(default=False, description="the run before the last restart")
    tail_lines: Lines = DEFAULT_TAIL_LINES
    grep: tool.Expression = Field(default="", description="keep lines with one of a|b|c (plain text)")
    before: tool.Expression = Field(
        default="", description="read on: the lines before this time or text of a line"
    )
    after: tool.Expression = Field(default="", description="the lines after it")

    @property
    def is_end(self) -> bool:
        """True if the end of the log is requested, not a part of it."""
        return not (self.grep or self.before or self.after)


async def get_pod_logs(run: tool.ToolContext, asked: GetPodLogs) -> tool.ToolOutput:
    """The end of one container's log, or a part of it.

    A part is the lines before or after a place, or those that contain one of some texts.
    """
    ref = ObjectRef("Pod", asked.pod, asked.namespace, "v1")
    pod = await _pod(run, ref)
    chosen = _choose(pod, asked, ref)
    query = LogQuery(
        asked.namespace,
        asked.pod,
        chosen.name,
        previous=asked.previous,
        tail_lines=asked.tail_lines if asked.is_end else MAX_TAIL_LINES,
        limit_bytes=LOG_BYTES if asked.is_end else GREP_BYTES,
    )
    scope = _scope(ref, chosen.name, asked)
    try:
        raw = await run.cluster.logs(query)
    except ClusterError as error:
        raise _no_log(error, chosen, asked, scope) from error
    lines = rendering.clean_lines(raw)
    if not asked.is_end:
        found = _part(lines, asked, scope)
        scope = f"{scope}: {len(found)} of the last {len(lines)} lines match"
        reads_on = asked.after and not asked.before
        lines = found[: asked.tail_lines] if reads_on else found[-asked.tail_lines :]
    shown = rendering.log_excerpt(rendering.redacted(lines), tool.RESULT_TOKENS, len(lines))
    return tool.ToolOutput(shown.body or _nothing(asked, pod), scope, shown.cut)


def _part(lines: list[str], asked: GetPodLogs, scope: str) -> list[str]:
    """The lines between the two places that contain one of the texts. Raises ToolProblem."""
    try:
        found = rendering.between(lines, asked.after, asked.before)
    except rendering.NoSuchPlace as place:
        message = f"none of the last {len(lines)} lines holds {place}; give a time, or a text as it stands in a line"
        raise tool.ToolProblem(message, scope=scope) from place
    return rendering.matching(found, asked.grep) if asked.grep else found


async def _pod(run: tool.ToolContext, ref: ObjectRef) -> Manifest:
    try:
        return await run.cluster.get(ref)
    except ClusterError as error:
        if error.reason is ClusterReason.NOT_FOUND:
            raise tool.ToolProblem(
                f"{ref} does not exist, its logs are gone; list_resources shows the pods there are",
                scope=str(ref),
            ) from error
        raise problem_of(error, str(ref)) from error


def _choose(pod: Manifest, asked: GetPodLogs, ref: ObjectRef) -> Container:
    found = list(containers(pod))
    names = ", ".join(c.name for c in found)
    if asked.container:
        for container in found:
            if container.name == asked.container:
                return container
        raise tool.ToolProblem(f"{ref} has no container {asked.container}; it has: {names}", scope=str(ref))
    if not found:
        raise tool.ToolProblem(f"{ref} has no containers", scope=str(ref))
    return rendering.most_interesting(found)


def _scope(ref: ObjectRef, container: str, asked: GetPodLogs) -> str:
    run = "previous" if asked.previous else "current"
    if asked.is_end:
        return f"{ref} container {container}, {run}, last {asked.tail_lines} lines"
    parts = (("after", asked.after), ("before", asked.before), ("with", asked.grep))
    which = " ".join(f"{word} {text}" for word, text in parts if text)
    return f"{ref} container {container}, {run}, lines {which}"


def _no_log(error: ClusterError, container: Container, asked: GetPodLogs, scope: str) -> tool.ToolProblem:
    if error.reason not in {ClusterReason.BAD_REQUEST, ClusterReason.NOT_FOUND}:
        return problem_of(error, scope)
    if asked.previous:
        hint = f"container {container.name} has {container.restarts} restarts; ask without previous"
    else:
        waiting = container.waiting.get("reason")
        hint = (
            f"container {container.name} is waiting ({waiting}): it has not started, see events"
            if waiting
            else ""
        )
    return tool.ToolProblem(f"no such log: {error.message}{f' ({hint})' if hint else ''}", scope=scope)


def _nothing(asked: GetPodLogs, pod: Manifest) -> str:
    if not asked.is_end:
        return "no line matches"
    other = "" if asked.previous else "; previous=true shows the run before the last restart"
    return f"the log is empty (pod status {pod_status(pod)}{other})"


GET_POD_LOGS = tool.ToolDef(
    "get_pod_logs",
    "End of a container's log, or a part of it. For crashes read previous=true first.",
    GetPodLogs,
    get_pod_logs,
    shows=EvidenceKind.LOG,
    details=frozenset({"tail_lines", "grep", "before", "after"}),
)
