"""Messages of Kubernetes components, sorted into a closed set of classes.

A class may only choose between causes of the object that the component wrote about. Names, numbers and hosts
in a message are only used to find its reference in the object's own spec.
"""

from __future__ import annotations

import enum
import re


class ImageProblem(enum.StrEnum):
    """Why an image cannot be pulled (kubelet and container runtime), in words."""

    ABSENT_OR_DENIED = "the image does not exist, or access to it is denied"
    UNAUTHORIZED = "the registry denies access: unauthorized"
    NOT_FOUND = "the image is not found"
    RATE_LIMITED = "the registry limits the rate of pulls"
    PLATFORM = "the image does not support the platform of the node"
    UNREACHABLE = "the registry is unreachable"
    UNTRUSTED = "the certificate of the registry is not trusted"
    INVALID = "the name of the image is invalid"
    NO_SPACE = "the node has no space left"
    UNKNOWN = "the reason is not known"


IMAGE = (
    (ImageProblem.NO_SPACE, r"no space left on device|disk quota exceeded"),
    (ImageProblem.RATE_LIMITED, r"toomanyrequests|too many requests|rate limit|\b429\b"),
    (ImageProblem.PLATFORM, r"no match for platform|no matching manifest|no image found .* platform"),
    (ImageProblem.UNTRUSTED, r"x509|unknown authority|certificate"),
    (ImageProblem.UNREACHABLE, r"no such host|i/o timeout|connection refused|deadline exceeded|network is unreachable|try again"),
    (ImageProblem.ABSENT_OR_DENIED, r"does not exist or may require"),
    (ImageProblem.UNAUTHORIZED, r"unauthori[sz]ed|authentication required|authorization failed|\b40[13]\b|forbidden|access denied|no basic auth|unable to retrieve some image pull secrets"),
    (ImageProblem.NOT_FOUND, r"not found|manifest unknown|does not exist|name unknown|\b404\b"),
    (ImageProblem.INVALID, r"invalid reference|InvalidImageName|couldn't parse image"),
)  # fmt: skip


class Refusal(enum.StrEnum):
    """Why the API server refused to create a pod (controllers report its answer), in words."""

    QUOTA = "the quota is exhausted"
    QUOTA_NEEDS_VALUES = "a quota requires values that the containers do not have"
    LIMIT_RANGE = "a LimitRange does not allow the resources"
    POD_SECURITY = "the Pod Security level of the namespace does not allow them"
    SERVICE_ACCOUNT = "the service account does not exist"
    PRIORITY_CLASS = "the priority class does not exist"
    WEBHOOK_CERTIFICATE = "the certificate of an admission webhook is not valid"
    WEBHOOK_DOWN = "an admission webhook does not answer"
    WEBHOOK_DENIED = "an admission webhook denies the request"
    UNKNOWN = "the reason is not known"


REFUSALS = (
    (Refusal.QUOTA_NEEDS_VALUES, r"failed quota: .*must specify"),
    (Refusal.QUOTA, r"exceeded quota"),
    (Refusal.WEBHOOK_CERTIFICATE, r"failed (?:calling|to call) webhook .*x509: certificate"),
    (Refusal.WEBHOOK_DOWN, r"failed calling webhook|failed to call webhook"),
    (Refusal.WEBHOOK_DENIED, r"admission webhook .* denied"),
    (Refusal.POD_SECURITY, r"violates PodSecurity"),
    (Refusal.LIMIT_RANGE, r"(?:maximum|minimum) \w[\w-]* (?:usage|limit)"),
    (Refusal.SERVICE_ACCOUNT, r"serviceaccount .*not found|error looking up service account"),
    (Refusal.PRIORITY_CLASS, r"no PriorityClass with name"),
)  # fmt: skip


class MissingPart(enum.StrEnum):
    """A missing part without which a pod cannot start (kubelet)."""

    OBJECT = "object"
    KEY = "key"
    NONE = "none"


NETWORK_DOWN = re.compile(r"\bcni\b|network ?plugin|NetworkPluginNotReady|NetworkReady=false", re.IGNORECASE)
OBJECT_MISSING = re.compile(
    r"\b(?:configmap|secret|serviceaccount)\b.*not found|not found.*\b(?:configmap|secret)\b", re.IGNORECASE
)
KEY_MISSING = re.compile(r"couldn't find key|references non-existent (?:config|secret) key", re.IGNORECASE)


def image_problem(*messages: str) -> ImageProblem:
    """The class of the kubelet's message about an image."""
    found = (kind for kind, words in IMAGE for m in messages if re.search(words, m, re.IGNORECASE))
    return next(found, ImageProblem.UNKNOWN)


def refusal(*messages: str) -> Refusal:
    """The class of the reason why a pod was not created."""
    found = (kind for kind, words in REFUSALS for m in messages if re.search(words, m, re.IGNORECASE))
    return next(found, Refusal.UNKNOWN)


def missing_part(message: str) -> MissingPart:
    """The part that the kubelet reports as missing: an object, or a key of one."""
    if KEY_MISSING.search(message):
        return MissingPart.KEY
    return MissingPart.OBJECT if OBJECT_MISSING.search(message) else MissingPart.NONE


def speaks_of(message: str, name: str) -> bool:
    """True if a message means this reference of the object's own spec."""
    return bool(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-]*\w)", message))
