"""The AsyncAPI 3.0 document: what travels where, and with which headers.

It is one file that contains its schemas and examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schemas.audit import EventType
from schemas.failure import DeadLetterReason
from schemas.subjects import (
    REPLAY_HEADER,
    REQUEST_REJECTED_TYPE,
    RESPONSE_REJECTED_TYPE,
    Header,
    Subjects,
    audit_type,
    cloud_source,
    request_key,
    result_type,
)
from schemas.taxonomy import RequestKind

VERSION: Final = "1.0.0"
SCHEMAS: Final = "#/components/schemas/"
TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MSG_ID: Final = "Nats-Msg-Id"
REDELIVERY: Final = "Within its deduplication window, the server stores messages with the same id once."
HEADERS: Final = {
    MSG_ID: REDELIVERY,
    REPLAY_HEADER: "Id of the dead letter; only on a request that an operator replays.",
    Header.REASON: "Why the request could not be served, as a code.",
    Header.ORIGIN_STREAM: "Stream of the request.",
    Header.ORIGIN_SEQUENCE: "Sequence of the request in that stream.",
    Header.ORIGIN_STORED_AT: "When that stream stored the request.",
    Header.ORIGIN_SUBJECT: "Subject of the request.",
    Header.DELIVERIES: "How often the request was delivered.",
    Header.ERROR: "The last error, percent-encoded.",
    Header.CE_ID: f"The same as {MSG_ID}.",
    Header.CE_SOURCE: "The worker, by the name of its cluster.",
    Header.CE_SUBJECT: "The request key, percent-encoded like all CloudEvents header values on NATS; "
    "absent if it could not be read.",
    Header.TRACEPARENT: "W3C trace context.",
}

Json = dict[str, Any]


def asyncapi(schemas: Mapping[str, Json], samples: Mapping[str, Any]) -> Json:
    """The document with the default prefix.

    `schemas` are JSON Schemas by name, `samples` are messages by file name.
    """
    channels = _channels(Subjects())
    received = {name for name in channels if name.startswith("requests.") or name == "outcomes"}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "rca-worker",
            "version": VERSION,
            "description": "Takes Kubernetes incidents and publishes checked root cause analyses, over NATS JetStream. "
            "The prefix `rca` of the addresses is a setting; streams and buckets have it in upper case.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {
                "host": "{host}:4222",
                "protocol": "nats",
                "description": "A NATS server with JetStream on which `rca provision` has created the streams.",
                "variables": {"host": {"default": "nats", "description": "Name of the server."}},
            }
        },
        "channels": channels,
        "operations": {
            name: {
                "action": "receive" if name in received else "send",
                "channel": {"$ref": f"#/channels/{name}"},
            }
            for name in channels
        },
        "components": {"messages": _messages(samples), "schemas": bundled(schemas)},
    }


def bundled(schemas: Mapping[str, Json]) -> Json:
    """All schemas, with the definitions of each under its own name.

    Input and output schemas may differ in the definitions that they share.
    """
    components: Json = {}
    for name, schema in schemas.items():
        root = {key: value for key, value in schema.items() if key not in {"$schema", "$id", "$defs"}}
        components[name] = _moved(root, name)
        for definition, body in schema.get("$defs", {}).items():
            components[f"{name}.{definition}"] = _moved(body, name)
    return components


def _moved(node: Any, name: str) -> Any:
    """The schema with its references to definitions of `name` as references into the document."""
    if isinstance(node, list):
        return [_moved(item, name) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value.replace("#/$defs/", f"{SCHEMAS}{name}.") if key == "$ref" else _moved(value, name)
        for key, value in node.items()
    }


def _message(
    schema: str,
    example: Json,
    ce_types: Sequence[str] = (),
    headers: Sequence[str] = (),
    event_id: str = "rr-1",
) -> Json:
    """A message in binary mode of CloudEvents 1.0 when it has `ce_types`, else with the named headers."""
    properties: Json = {h: {"type": "string", "description": HEADERS[h]} for h in (MSG_ID, *headers)}
    sent = {MSG_ID: event_id, Header.TRACEPARENT: TRACEPARENT}
    if ce_types:
        properties |= {
            Header.CE_SPECVERSION: {"type": "string", "const": "1.0"},
            Header.CE_ID: {"type": "string", "description": HEADERS[Header.CE_ID]},
            Header.CE_SOURCE: {"type": "string", "description": HEADERS[Header.CE_SOURCE]},
            Header.CE_TYPE: {"type": "string", "enum": list(ce_types)},
            Header.CE_SUBJECT: {"type": "string", "description": HEADERS[Header.CE_SUBJECT]},
        }
        sent |= {
            Header.CE_SPECVERSION: "1.0",
            Header.CE_ID: sent[MSG_ID],
            Header.CE_SOURCE: cloud_source(""),
            Header.CE_TYPE: ce_types[0],
            Header.CE_SUBJECT: example.get("request_key")
            or request_key(example["remediation_id"], example["recovery_attempt_number"]),
        }
    properties[Header.TRACEPARENT] = {"type": "string", "description": HEADERS[Header.TRACEPARENT]}
    always = (
        [MSG_ID, Header.CE_SPECVERSION, Header.CE_ID, Header.CE_SOURCE, Header.CE_TYPE] if ce_types else []
    )
    return {
        "name": schema,
        "contentType": "application/json",
        "payload": {"$ref": f"{SCHEMAS}{schema}"},
        "headers": {"type": "object", "properties": properties, "required": always},
        "examples": [{"headers": {str(name): value for name, value in sent.items()}, "payload": example}],
    }


def _messages(samples: Mapping[str, Any]) -> Json:
    subjects = Subjects()
    incident, recovery, outcome = (
        samples[name] for name in ("incident-request", "recovery-request", "remediation-outcome")
    )
    event = samples["audit-event-request.accepted"]
    event_types = [audit_type(kind) for kind in EventType]
    first = audit_type(event["event_type"])
    done, review = samples["analysis-result-completed"], samples["analysis-result-review"]
    refused, answer = samples["validation-failure-request"], samples["validation-failure-response"]
    return {
        "incidentRequest": _message("incident-request", incident, headers=(REPLAY_HEADER,)),
        "recoveryRequest": _message("recovery-request", recovery, headers=(REPLAY_HEADER,), event_id="rr-1.1"),
        "incidentResult": _message(
            "analysis-result", done, [result_type(RequestKind.INCIDENT)],
            event_id=subjects.result(RequestKind.INCIDENT, "rr-1"),
        ),
        "recoveryResult": _message(
            "analysis-result", review, [result_type(RequestKind.RECOVERY)],
            event_id=subjects.result(RequestKind.RECOVERY, "rr-1.1"),
        ),
        "requestRejected": _message("validation-failure", refused, [REQUEST_REJECTED_TYPE], event_id="17:invalid"),
        "responseRejected": _message("validation-failure", answer, [RESPONSE_REJECTED_TYPE], event_id="rr-1:17:1"),
        "auditEvent": _message(
            "audit-event", event,
            [first, *(kind for kind in event_types if kind != first)], event_id=event["event_id"],
        ),
        "deadLetter": _dead_letter(incident, samples["dead-letter"]),
        "remediationOutcome": _message("remediation-outcome", outcome),
    }  # fmt: skip


def _dead_letter(request: Json, letter: Json) -> Json:
    names = [header for header in Header if header.startswith("Rca-")]
    message = _message("dead-letter", request, headers=names, event_id=f"dlq-{letter['origin_sequence']}")
    sent = (
        letter["reason"], letter["origin_stream"], str(letter["origin_sequence"]), letter["origin_stored_at"],
        letter["origin_subject"], str(letter["deliveries"]), letter["error"].replace(" ", "%20"),
    )  # fmt: skip
    message["examples"][0]["headers"] |= dict(zip(map(str, names), sent, strict=True))
    return message | {"payload": {"description": "The body of the request, unchanged."}}


def _channel(address: str, message: str, stream: str, **parameters: Any) -> Json:
    channel: Json = {
        "address": address,
        "description": f"Kept in the stream {stream}.",
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
    }
    return channel | ({"parameters": parameters} if parameters else {})


def _channels(subjects: Subjects) -> dict[str, Any]:
    key = {
        "description": "Request key: the encoded remediation id; for a recovery, followed by a dot and the attempt."
    }
    listed = {
        kind: [s for s in subjects.request_subjects() if s.split(".")[2] == kind] for kind in RequestKind
    }
    channels = {
        "results.incident": _channel(
            subjects.result(RequestKind.INCIDENT, "{key}"), "incidentResult", subjects.results_stream, key=key
        ),
        "results.recovery": _channel(
            subjects.result(RequestKind.RECOVERY, "{key}"), "recoveryResult", subjects.results_stream, key=key
        ),
        "rejected.requests": _channel(
            subjects.validation_request(), "requestRejected", subjects.validation_stream
        ),
        "rejected.responses": _channel(
            subjects.validation_response("{key}"), "responseRejected", subjects.validation_stream, key=key
        ),
        "audit": _channel(
            subjects.audit("{event}"), "auditEvent", subjects.audit_stream, event={"enum": list(EventType)}
        ),
        "deadLetters": _channel(
            subjects.dead_letter("{reason}"), "deadLetter", subjects.dlq_stream,
            reason={"enum": list(DeadLetterReason)},
        ),
        "outcomes": _channel(subjects.outcome("{key}"), "remediationOutcome", subjects.outcomes_stream, key=key),
    }  # fmt: skip
    requests = {
        f"requests.{subject.partition('.request.')[2]}": _channel(
            subject, f"{kind}Request", subjects.requests_stream
        )
        for kind, kind_subjects in listed.items()
        for subject in kind_subjects
    }
    return requests | channels
