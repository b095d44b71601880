"""The tools that read the cluster: the reads of a call over the Cluster port, and how the answer is shown."""

from __future__ import annotations

import asyncio
import difflib
from typing import Any, Literal

from pydantic import Field

from worker.domain.cluster.changes import read_changes
from worker.domain.cluster.detected_labels import detect_labels
from worker.domain.cluster.events import read_events
from worker.domain.cluster.fields import name_of, text
from worker.domain.cluster.history import describe
from worker.domain.cluster.kinds import is_secret, kind_named
from worker.domain.cluster.owners import OwnerChain, owner_chain
from worker.domain.cluster.rendering.compact import NoSuchPath, render_object, render_value, to_json
from worker.domain.cluster.rendering.prune import last_change
from worker.domain.cluster.rendering.tables import render_lines, render_table, unhealthy
from worker.domain.cluster.timeline import timeline
from worker.domain.investigation.toolbox import tool
from worker.domain.untrusted.evidence import EvidenceKind
from worker.domain.values.errors import ClusterError, ClusterReason, or_none
from worker.domain.values.objects import KindInfo, ListQuery, ObjectRef
from worker.domain.values.workflow_search import Target

NO_SECRETS = "Secrets are never read; events and pod status tell whether one or one of its keys is missing"
NO_HISTORY = "not available: no history store is configured"
PASSING = {ClusterReason.UNAVAILABLE, ClusterReason.TIMEOUT}


class GetResource(tool.OfKind):
    """Arguments of get_resource."""

    name: tool.Name
    path: tool.Expression = Field(default="", description="part to show, e.g. spec.template.spec.containers")


class ListResources(tool.OfKind):
    """Arguments of list_resources."""

    namespace: tool.Word = Field(default="", description="empty: all")
    label_selector: tool.Expression = tool.aliased("label_selector", "labelSelector")
    field_selector: tool.Expression = tool.aliased(
        "field_selector", "fieldSelector", description="e.g. spec.nodeName=n1"
    )
    only_unhealthy: bool = False
    output: Literal["", "json"] = Field(default="", description="json: whole objects, one a line")


class GetEvents(tool.Arguments):
    """Arguments of get_events."""

    kind: tool.Word = ""
    name: tool.Word = ""
    namespace: tool.Word = Field(default="", description="empty: all")
    since: tool.Word = Field(default="", description="e.g. 30m, 2h")


class GetResourceContext(tool.OfKind):
    """Arguments of get_resource_context."""

    name: tool.Name


async def get_resource(run: tool.ToolContext, asked: GetResource) -> tool.ToolOutput:
    """One object, or the part of it at a path."""
    _refuse_secrets(asked.kind)
    info = await _kind(run, asked)
    ref = _named(asked, info, asked.name)
    try:
        manifest = await run.cluster.get(ref)
    except ClusterError as error:
        if error.reason is not ClusterReason.NOT_FOUND:
            raise problem_of(error, str(ref)) from error
        raise tool.ToolProblem(f"{ref} does not exist{await _similar(run, ref)}", scope=str(ref)) from error
    try:
        shown = render_object(manifest, tool.RESULT_TOKENS, path=asked.path)
    except NoSuchPath as error:
        raise tool.ToolProblem(str(error), scope=str(ref)) from error
    part = f", part {asked.path}" if asked.path else ""
    return tool.ToolOutput(shown.body, f"{ref}{part}", shown.cut)


async def list_resources(run: tool.ToolContext, asked: ListResources) -> tool.ToolOutput:
    """Objects of one kind, as a table or as JSON."""
    _refuse_secrets(asked.kind)
    if asked.resolved_kind == "Event":
        return await get_events(run, GetEvents(namespace=asked.namespace))
    info = await _kind(run, asked)
    namespace = asked.namespace if info.namespaced else ""
    query = ListQuery(info.kind, namespace, info.api_version, asked.label_selector, asked.field_selector)
    scope = _list_scope(info, namespace, asked)
    try:
        listing = await run.cluster.list(query)
    except ClusterError as error:
        raise problem_of(error, scope) from error
    found = [item for item in listing.items if unhealthy(item) or not asked.only_unhealthy]
    everywhere = info.namespaced and not namespace
    if asked.output == "json":
        table = render_lines(found, tool.RESULT_TOKENS)
    else:
        table = render_table(info.kind, found, run.now, tool.RESULT_TOKENS, all_namespaces=everywhere)
    notes = []
    if table.left_out:
        notes.append(
            f"{table.left_out} of {table.total} rows; narrow by namespace, label_selector or only_unhealthy"
        )
    if not listing.complete:
        notes.append(f"the cluster has more objects than the {len(listing.items)} read; narrow the query")
    counted = (
        f"{len(found)} of {len(listing.items)} unhealthy" if asked.only_unhealthy else f"{len(found)} found"
    )
    return tool.ToolOutput(table.body if found else "none", f"{scope}: {counted}", "; ".join(notes))


async def get_events(run: tool.ToolContext, asked: GetEvents) -> tool.ToolOutput:
    """Events of an object and of objects that belong to it by name, of a namespace, or of the cluster."""
    since = tool.moment_of(asked.since, run.now, "since") if asked.since else None
    about = ObjectRef(kind_named(asked.kind), asked.name, asked.namespace)
    scope = _event_scope(about, asked.since)
    found = await read_events(run.cluster, about)
    if found.error:
        raise problem_of(found.error, scope)
    items = [h for h in found.items if since is None or h.last >= since]
    shown = timeline(items, tool.RESULT_TOKENS)
    notes = (
        [f"{shown.left_out} of {len(items)} events (normal and older ones); narrow by object or since"]
        if shown.left_out
        else []
    )
    if found.gap:
        notes.append(f"not read: {found.gap}; narrow by object")
    return tool.ToolOutput(shown.body or "none", f"{scope}: {len(items)} found", "; ".join(notes))


async def get_resource_context(run: tool.ToolContext, asked: GetResourceContext) -> tool.ToolOutput:
    """Owner chain, detected labels and past remediations of an object; it becomes the target of the choice."""
    if is_secret(asked.kind):
        ref = ObjectRef("Secret", asked.name, asked.namespace, "v1")
        chain = OwnerChain((ref,), (None,), exists=None, note=NO_SECRETS)
    else:
        info = await _kind(run, asked)
        ref = _named(asked, info, asked.name)
        chain = await owner_chain(run.cluster, ref)
    if chain.exists is False:
        raise tool.ToolProblem(f"{ref} does not exist{await _similar(run, ref)}", scope=str(ref))
    async with asyncio.TaskGroup() as group:  # none of the three raises for the outside world
        detecting = group.create_task(detect_labels(run.cluster, chain))
        changes = group.create_task(_changes(run, chain.root))
        history = group.create_task(_history(run, chain))
    labels = detecting.result()
    shown = {
        "owner_chain": [_plain(member) for member in chain.chain],
        **({"root_owner": _plain(chain.root)} if run.for_agents else {}),
        "detected_labels": {
            k: v for k, v in labels.model_dump(by_alias=True).items()
            if k != "failedDetections" and k not in labels.failed_detections and (v or run.for_agents)
        },
        **({"failed_detections": failed} if (failed := list(labels.failed_detections)) or run.for_agents else {}),
        "remediation_history": history.result(),
    }  # fmt: skip
    if chain.note:
        shown["note"] = f"owner chain may go on: {chain.note}"
    if untold := [line for line in changes.result() if line not in run.told_changes]:
        shown["recent_changes"] = untold
    change = last_change(chain.root_manifest or {})
    if change and to_json(change) not in run.told_changes:
        shown["last_change"] = change
    target = Target(chain.start, chain.chain, labels, chain.exists)
    rendered = render_value(shown, tool.RESULT_TOKENS)
    return tool.ToolOutput(rendered.body, str(ref), rendered.cut, target)


async def _history(run: tool.ToolContext, chain: OwnerChain) -> dict[str, Any] | str:
    if run.lookback is None:
        return NO_HISTORY
    return describe(await run.lookback.look_up(chain), run.now)


async def _changes(run: tool.ToolContext, root: ObjectRef) -> list[str]:
    try:
        return await read_changes(run.cluster, root)
    except ClusterError as error:
        return [f"unknown: {error.message}"]


async def _kind(run: tool.ToolContext, asked: tool.OfKind) -> KindInfo:
    try:
        return await run.cluster.kind(asked.resolved_kind, asked.resolved_api_version)
    except ClusterError as error:
        raise problem_of(error, asked.kind) from error


async def _similar(run: tool.ToolContext, ref: ObjectRef) -> str:
    """Similar names of the same kind, for a name that does not exist; empty if they cannot be read."""
    listing = await or_none(run.cluster.list(ListQuery(ref.kind, ref.namespace, ref.api_version)))
    if listing is None:
        return ""
    names = [name_of(item) for item in listing.items]
    close = difflib.get_close_matches(ref.name, names, n=5, cutoff=0.5)
    close += [n for n in names if n not in close and (n.startswith(ref.name) or ref.name.startswith(n))][:5]
    where = f" in {ref.namespace}" if ref.namespace else ""
    if close:
        return f"; similar {ref.kind} names{where}: {', '.join(close[:6])}"
    if not names:
        return f"; there is no {ref.kind}{where}"
    return f"; there are {len(names)} objects of kind {ref.kind}{where}"


def problem_of(error: ClusterError, scope: str) -> tool.ToolProblem:
    """A failure of the cluster, with a hint that explains it.

    The hint also says that the failure proves nothing about the object.
    """
    hints = {
        ClusterReason.FORBIDDEN: "the worker may not read this; whether it exists is unknown",
        ClusterReason.UNKNOWN_KIND: "the cluster does not know this kind; give api_version or check the spelling",
        ClusterReason.UNAVAILABLE: "the cluster gave no answer; nothing is known about the object",
        ClusterReason.TIMEOUT: "the cluster did not answer in time; nothing is known about the object",
    }
    hint = hints.get(error.reason, "")
    message = f"{scope}: {error.reason.value}: {error.message}{f' ({hint})' if hint else ''}"
    return tool.ToolProblem(message, scope=scope, passing=error.reason in PASSING)


def _refuse_secrets(kind: str) -> None:
    if is_secret(kind):
        raise tool.ToolProblem(NO_SECRETS, scope="Secret")


def _named(asked: tool.OfKind, info: KindInfo, name: str) -> ObjectRef:
    if info.namespaced and not asked.namespace:
        raise tool.ToolProblem(
            f"{info.kind} is namespaced: namespace is required", scope=f"{info.kind} {name}"
        )
    return ObjectRef(info.kind, name, asked.namespace if info.namespaced else "", info.api_version)


def _list_scope(info: KindInfo, namespace: str, asked: ListResources) -> str:
    where = "" if not info.namespaced else f" in {namespace}" if namespace else " in all namespaces"
    filters = ", ".join(f for f in (asked.label_selector, asked.field_selector) if f)
    return f"{info.kind}{where}{f' where {filters}' if filters else ''}"


def _event_scope(about: ObjectRef, since: str) -> str:
    if about.name:
        what = f"{about.kind or 'any kind'} {f'{about.namespace}/' if about.namespace else ''}{about.name} and what belongs to it"
    else:
        what = f"{about.kind or 'all objects'} in {about.namespace or 'all namespaces'}"
    return f"events of {what}{f' since {since}' if since else ''}"


def _plain(ref: ObjectRef) -> dict[str, str]:
    return {
        "kind": ref.kind,
        "name": ref.name,
        "namespace": ref.namespace,
        "apiVersion": text(ref.api_version),
    }


GET_EVENTS = tool.ToolDef(
    "get_events",
    "Events, newest last, of one object (and what belongs to it), a namespace or the cluster.",
    GetEvents,
    get_events,
    shows=EvidenceKind.EVENTS,
    details=frozenset({"since"}),
)
GET_RESOURCE = tool.ToolDef(
    "get_resource",
    "One object as JSON. ConfigMap values are shown, Secrets never.",
    GetResource,
    get_resource,
    shows=EvidenceKind.OBJECT,
    details=frozenset({"path"}),
)
GET_RESOURCE_CONTEXT = tool.ToolDef(
    "get_resource_context",
    (
        "Owners (the last is the root), detected labels (others are false) and past remediations of the affected resource. "
        "It sets the label filters of the choice."
    ),
    GetResourceContext,
    get_resource_context,
    shows=EvidenceKind.OWNERS,
    served_as=(
        "Owner chain, detected labels (GitOps, PodDisruptionBudget, autoscaler, Helm, mesh ...) and past remediations of "
        "a Kubernetes object."
    ),
)
LIST_RESOURCES = tool.ToolDef(
    "list_resources",
    "Objects of one kind as a table, failing ones first. Any kind, also custom resources.",
    ListResources,
    list_resources,
    shows=EvidenceKind.TABLE,
    details=frozenset({"label_selector", "field_selector", "only_unhealthy", "output"}),
)
