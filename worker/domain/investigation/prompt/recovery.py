"""The first section of a recovery: the attempt that failed, and how to treat it (DD-RECOVERY-003).

The only place where an earlier conclusion is shown to the model: the handoff requires it. Reasons are
Kubernetes reason codes; the advice belongs to the code, never to the message.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.recovery import RecoveryRequest
from schemas.taxonomy import ReasonCode
from worker.domain.cluster.fields import stamp
from worker.domain.investigation.prompt.sections import WORD, word
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact_json

SHOWN_PARAMETERS, SHOWN_FACTORS = 20, 8

GUIDANCE: dict[str, tuple[str, str]] = {
    ReasonCode.OOM_KILLED: (
        "The remediation's own container ran over its memory limit.",
        "a workflow that needs less memory, smaller steps, or more memory first",
    ),
    ReasonCode.INSUFFICIENT_CPU: (
        "There was not enough CPU to run the remediation.",
        "freeing or adding CPU first, or a workflow that needs less",
    ),
    ReasonCode.INSUFFICIENT_MEMORY: (
        "There was not enough memory to run the remediation.",
        "freeing memory first, or a workflow that needs no more of it",
    ),
    ReasonCode.FAILED_SCHEDULING: (
        "The scheduler found no node for the remediation pod.",
        "checking affinity, taints and free resources, or a workflow that can run on other nodes",
    ),
    ReasonCode.UNSCHEDULABLE: (
        "The pod was marked unschedulable.",
        "checking node conditions, tolerations and affinity, or a workflow that lifts the constraint",
    ),
    ReasonCode.IMAGE_PULL_BACK_OFF: (
        "The workflow's image could not be pulled.",
        "checking that the image exists and the registry answers, or a workflow with another image",
    ),
    ReasonCode.ERR_IMAGE_PULL: (
        "Pulling the workflow's image failed.",
        "checking name, tag and registry access, or another workflow",
    ),
    ReasonCode.INVALID_IMAGE_NAME: (
        "The workflow's image reference is malformed: trying it again cannot work.",
        "another workflow; the catalog entry needs a person",
    ),
    ReasonCode.DEADLINE_EXCEEDED: (
        "The workflow ran out of time, because it was slow or stuck.",
        "finding out what it waited for, or a faster workflow",
    ),
    ReasonCode.BACKOFF_LIMIT_EXCEEDED: (
        "The workflow failed on every retry: the failure is persistent.",
        "a really different strategy",
    ),
    ReasonCode.ERROR: (
        "A step ended with a general error.",
        "reading the message and the logs before anything else",
    ),
    ReasonCode.UNAUTHORIZED: (
        "The workflow's credentials were not accepted.",
        "checking its service account, or a workflow that needs no such rights",
    ),
    ReasonCode.FORBIDDEN: (
        "RBAC, an admission controller or a policy refused the action.",
        "a workflow that stays within the policies",
    ),
    ReasonCode.FAILED_MOUNT: (
        "A volume of the workflow could not be mounted.",
        "checking claims, storage class and capacity, or a workflow without storage",
    ),
    ReasonCode.FAILED_ATTACH_VOLUME: (
        "A volume could not be attached to the node.",
        "checking where it is attached now, or another way to the storage",
    ),
    ReasonCode.NODE_NOT_READY: (
        "The node went away during the execution.",
        "checking the node's health first, or a workflow that can run elsewhere",
    ),
    ReasonCode.NODE_UNREACHABLE: (
        "The node could not be reached any more.",
        "treating the node as lost: its pods may still run, so nothing stateful may be started twice",
    ),
    ReasonCode.EVICTED: (
        "The pod was evicted because its node was under pressure.",
        "looking for what uses the node up, or a workflow with requests and limits on another node",
    ),
    ReasonCode.NETWORK_NOT_READY: (
        "The network was not ready for the pod.",
        "checking the CNI and network policies, or a workflow that needs little network",
    ),
}
"""Reason code -> what happened, what to consider."""


TASK = """\
### Your task
1. Do NOT select {failed} with the same parameters again: it has failed.
2. Investigate the CURRENT state, starting at the failed step: it may have changed something halfway.
3. Determine whether the signal type has CHANGED (an OOMKilled workload that was scaled out may now be \
FailedScheduling) and search with the current one.
4. Consider alternatives that fit the failure ({reason}), less aggressive ones first.
5. Search for what handles the current signal type and severity (query: signal type, severity, recovery). Include the \
failure reason in your search rationale, and say how your choice differs."""
ANSWER_FORM = """\
## Your answer
submit_result has two more fields here, both required:
```json
{"recovery_analysis": {"previous_attempt_assessment": {"failure_understood": true, "failure_reason_analysis": "why it \
failed", "state_changed": false, "current_signal_type": "as found now"}},
 "recovery_strategy": {"approach": "what you do now", "why_different": "how it differs from what failed"}}
```"""
"""What a recovery adds to the form of an answer (DD-RECOVERY-003). It ends the first turn."""


def guidance(reason: str) -> str:
    """Two bullets for a reason code; any other code gets the general ones."""
    happened, consider = GUIDANCE.get(
        reason,
        (
            f"The execution failed with {one_line(reason, WORD)}.",
            "finding out what this failure mode means here",
        ),
    )
    return f"- {happened}\n- Consider {consider}."


def previous_attempt(
    request: RecoveryRequest, sender: Callable[[str, str], str], shown: Callable[[str, str], str]
) -> str:
    """The section about the attempt that failed.

    It states the original cause, the workflow and the failure, and gives the five instructions.
    """
    previous = request.previous_execution
    rca, workflow, failure = previous.original_rca, previous.selected_workflow, previous.failure
    factors = first_factors(request)
    lines = [
        "## Previous Remediation Attempt",
        "This is a recovery: a remediation was tried and FAILED. Understand why before you choose another.",
        "",
        "### What was determined originally",
        f"- Signal Type then: {word(rca.signal_type)}",
        f"- Severity then: {rca.severity}",
        f"- Summary:\n{sender('original_rca', rca.summary)}",
        *([f"- Contributing Factors: {shown('contributing_factors', factors)}"] if factors else []),
        "",
        "### What was executed",
        f"- Workflow: {word(workflow.workflow_id)}"
        + (f" version {word(workflow.version)}" if workflow.version else ""),
        *([f"- Image: {word(workflow.container_image, 2 * WORD)}"] if workflow.container_image else []),
        *([f"- Rationale then:\n{sender('rationale', workflow.rationale)}"] if workflow.rationale else []),
        *(["- Parameters:", shown("parameters", given)] if (given := first_parameters(request)) else []),
        "",
        "### How it failed",
        f"- Step {failure.failed_step_index}: {word(failure.failed_step_name)}",
        f"- Kubernetes Reason: {failure.reason}",
        *([f"- Exit Code: {failure.exit_code}"] if failure.exit_code is not None else []),
        f"- Failed At: {stamp(failure.failed_at)}",
        f"- After: {word(failure.execution_time)}",
        f"- Message:\n{sender('failure_message', failure.message)}",
        guidance(failure.reason),
        "",
        TASK.format(failed=word(workflow.workflow_id), reason=failure.reason),
    ]
    return "\n".join(lines)


def first_factors(request: RecoveryRequest) -> str:
    """The first contributing factors of the original analysis."""
    factors = request.previous_execution.original_rca.contributing_factors
    return ", ".join(word(factor) for factor in factors[:SHOWN_FACTORS])


def first_parameters(request: RecoveryRequest) -> str:
    """The first parameters of the failed workflow, one a line."""
    given = redact_json(dict(request.previous_execution.selected_workflow.parameters))
    first = list(given.items())[:SHOWN_PARAMETERS]
    lines = [f"  - {one_line(name, WORD)}: {one_line(str(value), WORD)}" for name, value in first]
    more = len(given) - len(first)
    return "\n".join([*lines, *([f"  - ({more} more)"] if more else [])])
