"""The meaning of a provider's failure for a run: one table.

There are four answers. *Pause* ends every call until somebody acts (credentials, spending limit, no such
model). *Shrink* says that the conversation is too long. *Retry* may pass. *This request* concerns one request
only.

Structured codes come first, then the published wordings of providers and gateways for errors without a code,
then the status. Sources: the error references of OpenAI, Anthropic, Azure OpenAI, Amazon Bedrock, Google
Gemini and Vertex AI, Groq, Mistral, vLLM, llama.cpp, Ollama and LiteLLM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
)

from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason, network_reason

MAX_ERROR_CHARS = 300
MAX_READ_CHARS = 4_000
"""How much of an error body is searched for wordings."""

Meaning = GiveUpReason | RetryReason

CREDENTIALS, SPENDING = GiveUpReason.MODEL_REFUSED_CREDENTIALS, GiveUpReason.MODEL_SPEND_CAP
NO_MODEL, TOO_LONG = GiveUpReason.MODEL_NOT_FOUND, GiveUpReason.CONTEXT_OVERFLOW
REJECTED = GiveUpReason.MODEL_REJECTED_REQUEST
RATE_LIMITED, UNAVAILABLE = RetryReason.MODEL_RATE_LIMITED, RetryReason.MODEL_UNAVAILABLE

CODES: Mapping[str, Meaning] = {
    code: meaning
    for meaning, codes in (
        (
            CREDENTIALS,
            (
                "invalid_api_key",
                "invalid_authentication",
                "authentication_error",
                "permission_error",
                "account_deactivated",
                "api_key_invalid",
                "unauthenticated",
                "permission_denied",
                "accessdeniedexception",
                "unrecognizedclientexception",
                "expiredtokenexception",
                "invalidsignatureexception",
                "organization_restricted",
            ),
        ),
        (
            SPENDING,
            (
                "insufficient_quota",
                "billing_hard_limit_reached",
                "billing_not_active",
                "billing_error",
                "budget_exceeded",
                "insufficient_balance",
                "insufficient_credits",
            ),
        ),
        (
            NO_MODEL,
            (
                "model_not_found",
                "modelnotfound",
                "deploymentnotfound",
                "model_decommissioned",
                "model_deprecated",
                "unknown_model",
                "invalid_model",
                "resourcenotfoundexception",
            ),
        ),
        (
            TOO_LONG,
            (
                "context_length_exceeded",
                "exceed_context_size_error",
                "contextwindowexceedederror",
                "request_too_large",
                "prompt_too_long",
            ),
        ),
        (
            RATE_LIMITED,
            (
                "rate_limit_exceeded",
                "rate_limit_error",
                "resource_exhausted",
                "throttlingexception",
                "too_many_requests",
            ),
        ),
        (
            UNAVAILABLE,
            (
                "overloaded_error",
                "engine_overloaded",
                "serviceunavailableexception",
                "modelnotreadyexception",
                "modeltimeoutexception",
                "modelerrorexception",
                "internalserverexception",
                "unavailable",
            ),
        ),
        (
            REJECTED,
            ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "invalid_prompt"),
        ),
    )
    for code in codes
}
"""Codes, types and statuses of error bodies, in lower case."""

WORDINGS: tuple[tuple[Meaning, re.Pattern[str]], ...] = tuple(
    (meaning, re.compile("|".join(words), re.IGNORECASE))
    for meaning, words in (
        (
            SPENDING,
            (
                r"credit balance is too low",
                r"reached your specified .{0,20}usage limits?",
                r"budget has been exceeded",
                r"exceeded your current quota",
                r"(?:spending|spend|usage|billing|monthly) (?:hard )?(?:limit|cap)\b.{0,40}(?:reached|exceeded)",
                r"(?:exceeded|reached) your .{0,30}(?:spending|billing|monthly) limit",
                r"insufficient (?:balance|funds|credits?)",
                r"billing (?:is|has) not (?:been )?(?:active|enabled)",
                r"out of credits",
            ),
        ),
        (
            TOO_LONG,
            (
                r"context (?:length|window|size)",
                r"maximum (?:context|input) length",
                r"(?:prompt|input|request|message|conversation)s? (?:is|are) too (?:long|large)",
                r"input token count .{0,40}exceeds",
                r"input (?:tokens|length) .{0,60}exceeds?",
                r"exceeds? .{0,30}(?:context|token) limit",
                r"exceeds? the (?:available|maximum) .{0,20}(?:context|tokens)",
                r"request too large for model",
                r"too many (?:input )?tokens",
                r"reduce the length",
            ),
        ),
        (
            NO_MODEL,
            (
                r"model\b[^.\n]{0,120}\b(?:not found|does not exist|doesn't exist|not exist|is not supported|is not available)",
                r"model\b[^.\n]{0,120}\b(?:deprecated|decommissioned|retired|end of life|no longer available)",
                r"(?:no such|unknown|invalid|unsupported) model",
                r"model identifier is invalid",
                r"try pulling it first",
                r"not a valid model id",
                r"deployment\b[^.\n]{0,80}\bdoes not exist",
            ),
        ),
        (
            CREDENTIALS,
            (
                r"api[ _-]?key (?:is )?(?:not valid|invalid|expired|missing|disabled)",
                r"(?:invalid|incorrect|missing|no) (?:x-)?api[ _-]?key",
                r"invalid subscription key",
                r"security token included in the request is (?:invalid|expired)",
                r"could not (?:resolve|validate) authentication",
                r"not authorized to (?:perform|invoke|access)",
                r"don't have access to the model",
            ),
        ),
        (
            UNAVAILABLE,
            (
                r"model is (?:not ready|loading|currently overloaded)",
                r"loading model",
                r"overloaded",
                r"try again later",
            ),
        ),
    )
)
"""For bodies without a known code. The first that matches counts."""

STATUSES: Mapping[int, Meaning] = {
    401: CREDENTIALS,
    402: SPENDING,
    403: CREDENTIALS,
    404: NO_MODEL,
    408: UNAVAILABLE,
    409: UNAVAILABLE,
    413: TOO_LONG,
    424: UNAVAILABLE,
    425: UNAVAILABLE,
    429: RATE_LIMITED,
}

KINDS: tuple[tuple[type[Exception], Meaning], ...] = (
    (ModelContextWindowExceededError, TOO_LONG),
    (ModelQuotaExceededError, SPENDING),
    (ModelAuthenticationError, CREDENTIALS),
    (ModelRateLimitError, RATE_LIMITED),
    (ContentFilterError, REJECTED),
)
"""Errors that the library itself recognises, for failures without a status."""


NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "DefaultCredentialsError",
        "RefreshError",
    }
)
"""Errors by which the clients of AWS and Google report missing credentials."""


def one_line(problem: object) -> str:
    """The text of a problem on one line, bounded."""
    return " ".join(str(problem)[: 4 * MAX_ERROR_CHARS].split())[:MAX_ERROR_CHARS]


def translate(error: Exception) -> Retry | GiveUp:
    """The failure in the domain's terms, with the provider's own message."""
    why = network_reason(error)
    message = said_by_provider(error) or one_line(f"{error} ({why})" if why else error)
    meaning = meaning_of(error)
    if isinstance(meaning, GiveUpReason):
        return GiveUp(meaning, message)
    return Retry(meaning, message, error.retry_after if isinstance(error, ModelAPIError) else None)


def meaning_of(error: Exception) -> Meaning:
    """What to do about a failure.

    An unknown failure is retried, unless it is a 4xx: the same request would fail again.
    """
    body = getattr(error, "body", None)
    status = error.status_code if isinstance(error, ModelHTTPError) else 0
    text = (json.dumps(body, default=str) if body else str(error))[:MAX_READ_CHARS]
    if type(error).__name__ in NO_CREDENTIALS:
        return CREDENTIALS
    if by_code := next((CODES[code] for code in _codes(body) if code in CODES), None):
        too_large = by_code is RATE_LIMITED and status == 413  # Groq: one request above the limit per minute
        return TOO_LONG if too_large else by_code
    if status < 500 and (by_words := next((m for m, words in WORDINGS if words.search(text)), None)):
        return by_words
    if status in STATUSES:
        return STATUSES[status]
    if 400 <= status < 500:
        return REJECTED
    return next((meaning for kind, meaning in KINDS if isinstance(error, kind)), UNAVAILABLE)


def said_by_provider(error: Exception) -> str:
    """The message in an error body: `error.message`, `message`, `detail`; empty without one."""
    for part in _parts(getattr(error, "body", None)):
        for key in ("message", "Message", "detail"):
            if isinstance(text := part.get(key), str) and text.strip():
                status = f"{error.status_code}: " if isinstance(error, ModelHTTPError) else ""
                return one_line(status + text)
    return ""


def _codes(body: object) -> Iterator[str]:
    """Codes of an error body, the most precise first."""
    for part in _parts(body):
        for key in ("code", "type", "status", "__type", "reason"):
            if isinstance(code := part.get(key), str):
                yield code.lower().rpartition("#")[2]


def _parts(body: object) -> Iterator[Mapping[str, Any]]:
    """The objects of an error body from the inside out: `innererror`, `error`, the body."""
    if isinstance(body, list) and body:
        body = body[0]  # Gemini wraps its errors into a list
    if not isinstance(body, Mapping):
        return
    error = body.get("error")
    if isinstance(error, Mapping):
        for key in ("innererror", "metadata"):
            if isinstance(inner := error.get(key), Mapping):
                yield inner
        for detail in error.get("details") or ():
            if isinstance(detail, Mapping):
                yield detail
        yield error
    elif isinstance(error, str):
        yield {"message": error}
    yield body
