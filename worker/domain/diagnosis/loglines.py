"""Classes of log and event messages, by what went wrong, whatever the wording.

Each class is a family of phrases that many kinds of programs share, not the text of one program. A line has
at most one class: the first in `CLASSES` whose pattern it contains. The last telling line decides, because
programs die of their last error.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


class Trouble(enum.StrEnum):
    """The class of a message."""

    EXEC_FORMAT = "exec format"
    APP_MEMORY = "memory exhausted in the process"
    DISK_FULL = "disk full"
    REFUSAL = "server refuses"
    DB_FRAGMENTED = "database space exceeded"
    CERTIFICATE = "certificate"
    POOL = "connections exhausted"
    RBAC = "kubernetes permissions"
    MESH = "mesh policy"
    CREDENTIALS = "credentials rejected"
    MISSING_ENV = "setting missing"
    DNS = "name not resolved"
    DEPENDENCY = "dependency unreachable"
    CONFIG = "configuration"
    MISSING_FILE = "missing file"
    OTHER = "other"
    CRASH = "crash"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


CLASSES: tuple[tuple[Trouble, re.Pattern[str]], ...] = (
    (Trouble.EXEC_FORMAT, _any(r"exec format error", r"cannot execute binary file", r"wrong architecture")),
    (Trouble.REFUSAL, _any(
        r"command not allowed when used memory", r"\bMISCONF\b", r"READONLY You can't write", r"cluster_block_exception",
        r"\bis sealed\b", r"(?:server|database|cluster|replica|node|primary) is (?:in )?(?:read-only|recovery|maintenance)",
        r"cannot execute \w+ in a read-only transaction",
    )),
    (Trouble.APP_MEMORY, _any(
        r"out ?of ?memory", r"OutOfMemoryError", r"cannot allocate memory", r"\bMemoryError\b",
        r"heap (?:limit|space|exhaust)", r"allocation fail(?:ed|ure)", r"\bENOMEM\b",
    )),
    (Trouble.DISK_FULL, _any(
        r"no space left on device", r"\bENOSPC\b",
        r"\b(?:disk|volume|file ?system|device|storage|partition)\b[^.;]{0,24}\b(?:is |are )?(?:full|exhausted)\b",
        r"\b(?:low|lack|not enough|insufficient|out of|no|no more|ran out of)[- ](?:free |of )?(?:disk|storage)(?:[- ]space)?",
        r"insufficient disk", r"disk quota exceeded", r"could not extend file",
        r"(?:disk|storage) usage (?:exceed|above|over)\w*", r"flood[- ]stage (?:disk )?watermark",
    )),
    (Trouble.DB_FRAGMENTED, _any(r"database space exceeded", r"alarm:\s*NOSPACE", r"\bNOSPACE alarm")),
    (Trouble.CERTIFICATE, _any(
        r"certificate (?:has |is |was )?(?:already )?expired", r"expired (?:\w+ )?cert", r"cert\w{0,16}+ (?:\S+ ){0,4}expired",
        r"certificate (?:has expired or )?is not (?:yet )?valid", r"x509:", r"certificate verify failed",
        r"unknown (?:certificate )?authority", r"CERT_HAS_EXPIRED", r"CertificateExpired", r"ExpiredCert",
        r"bad certificate", r"self[- ]signed certificate", r"PKIX path",
    )),
    (Trouble.POOL, _any(
        r"too many (?:clients|connections)", r"max_?connections?\b.{0,40}(?:reach|exceed|hit|limit|exhaust)",
        r"remaining connection slots", r"connection pool (?:is |was |has been )?(?:exhausted|full|timeout)",
        r"(?:pool|queuepool) (?:limit|exhaust)\w*", r"max(?:imum)? number of (?:clients|connections)",
        r"unable to (?:acquire|get|obtain) (?:a |jdbc )?connection",
        r"timeout (?:waiting for|acquiring) (?:a )?(?:idle )?connection",
    )),
    (Trouble.MESH, _any(r"RBAC: access denied")),
    (Trouble.RBAC, _any(
        r"is forbidden: User", r"cannot (?:get|list|watch|create|update|patch|delete) resource",
        r"forbidden: .{0,80}serviceaccount",
    )),
    (Trouble.CREDENTIALS, _any(
        r"password authentication failed", r"auth\w{0,16}+ (?:failed|failure|error|rejected|denied)",
        r"access denied for (?:user|account)",
        r"(?:invalid|wrong|incorrect|bad|expired|stale|revoked) (?:username|user name|user|password|credential|token|api[- ]?key|access key)",
        r"\b(?:password|credentials?|token|api[- ]?key) (?:is |are |was |were |has |have )?(?:been )?(?:invalid|wrong|incorrect|rejected|expired|revoked|not accepted)",
        r"\bWRONGPASS\b", r"\bNOAUTH\b", r"login failed", r"\b401\b.{0,20}unauthori[sz]ed", r"unauthori[sz]ed",
        r"InvalidAccessKeyId|SignatureDoesNotMatch|ACCESS_REFUSED|SASL", r"not authori[sz]ed(?! to\b)",
    )),
    (Trouble.MISSING_ENV, _any(
        r"(?:environment|env)(?:ironment)? ?(?:variable|var)s? .{0,60}(?:not set|missing|required|undefined|empty|must be|not found|unset)",
        r"(?:missing|required|undefined|unset|no) (?:required |mandatory )?(?:environment|env)\b",
        r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b.{0,24}(?:not set|is required|must be set|is missing|undefined|unset|is empty|not defined)",
        r"(?:missing|required) (?:setting|variable|parameter) [\"'`]?[A-Z][A-Z0-9_]{2,}", r"KeyError: ['\"][A-Z][A-Z0-9_]+",
        r"(?:must set|please set|need to set|specify) [\"'`$]?[A-Z][A-Z0-9]*_[A-Z0-9_]+",
    )),
    (Trouble.OTHER, _any(r"toomanyrequests", r"rate ?limit", r"\b429\b")),
    (Trouble.DNS, _any(
        r"no such host", r"name or service not known", r"(?:temporary failure in )?name resolution",
        r"could not (?:translate|resolve) host", r"could not be resolved",
        r"(?:cannot|can't|can not|unable to|failed to|failure to|not able to) (?:resolve|look ?up)", r"getaddrinfo",
        r"\bENOTFOUND\b|\bEAI_AGAIN\b|\bNXDOMAIN\b|\bSERVFAIL\b", r"UnknownHost\w*", r"bad address",
        r"nodename nor servname", r"name does not resolve", r"dns (?:lookup|resolution|error|failure)",
        r"server misbehaving", r"unknown host", r"host(?:name)? not found",
    )),
    (Trouble.DEPENDENCY, _any(
        r"connection (?:\w+ ){0,3}(?:refused|reset|timed ?out|closed|failed|aborted|lost|error)",
        r"connection to .{1,80}(?:failed|refused|timed ?out|lost|reset)",
        r"ECONN(?:REFUSED|RESET|ABORTED)|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH",
        r"(?:cannot|can't|can not|could not|couldn't|unable to|failed to|failure to|failing to|not able to) (?:\w+ ){0,2}(?:connect|reach|dial|contact|open (?:a )?connection|establish|ping|talk|access)",
        r"(?:i/o|connect(?:ion)?|read|request|dial|connect) time(?:d )?-?out",
        r"no route to host|network is unreachable|host is unreachable|host unreachable",
        r"(?:error|errno|fail\w{0,12}+)\b.{0,24}\bconnecting\b", r"could not be (?:established|reached|opened)",
        r"may not be available", r"\bunreachable\b", r"not reachable", r"dial (?:tcp|udp)", r"context deadline exceeded",
        r"deadline ?exceeded", r"waiting (?:for|on|until) ", r"still waiting",
        r"not (?:yet )?(?:ready|available)[,.:;]? ?(?:retry|waiting|sleep)",
        r"upstream (?:connect|request|prematurely|timed)", r"\b50[234]\b (?:bad gateway|service unavailable|gateway)",
        r"no (?:available|usable|healthy|live) (?:connection|upstream|server|host|broker|node|backend|endpoint)",
        r"service unavailable", r"\b(?:status|code|http)(?: ?code)?[\"'=: ]{1,4}50[234]\b", r"host\(?s?\)? tried",
        r"brokers? (?:not|un)available|LEADER_NOT_AVAILABLE|no leader", r"lost connection|connection is closed|broken pipe",
        r"communications link failure", r"SQLSTATE\[?\(?(?:HY000|08\d{3})",
    )),
    (Trouble.OTHER, _any(
        r"(?:unknown|unrecogni[sz]ed|unexpected|invalid|undefined) (?:shorthand |command[- ]line |long |short )?(?:flags?|arguments?|options?|switch|parameter)s?:? [\"'`(]?-",
        r"(?:unknown|unrecogni[sz]ed) (?:shorthand )?(?:flag|arguments?|(?:sub)?command)\b",
        r"flag provided but not defined", r"no such option:? [\"'`]?-", r"illegal option -",
    )),
    (Trouble.CONFIG, _any(
        r"(?:pars\w{1,12}+|syntax|unmarshal\w{0,12}+|decod\w{1,12}+|malformed|invalid|illegal|unknown|unexpected|unrecogni[sz]ed|unsupported|bad|broken|error in|errors in|failed to (?:load|read|process|validate)|can(?:no|')t (?:load|read)|could not (?:load|read)|fail\w{0,12}+ (?:in|on)|validation).{0,60}\b(?:config\w*|conf|directive|option|setting|settings|field|property|properties|ya?ml|json|toml|ini|key)\b",
        r"\b(?:config\w*|conf|directive|option|setting|settings|field|property|properties|ya?ml|json|toml|ini|key)\b.{0,60}(?:pars\w+|syntax|malformed|invalid|illegal|unknown|unexpected|unrecogni[sz]ed|unsupported|not allowed|not valid|is not a valid|missing|detected|rejected|error|fail\w*)",
        r"mapping values are not allowed", r"did not find expected", r"\[emerg\]",
        r"unexpected (?:token|end of (?:json|file|input)|eof)", r"must be (?:one of|a (?:number|string|boolean|positive))",
        r"(?<![\w./-])[\w./-]+\.(?:ya?ml|json|toml|ini|conf|cfg|properties|xml|env)\b.{0,40}\b(?:line|invalid|error|fail)",
    )),
    (Trouble.OTHER, _any(
        r"address already in use", r"\bEADDRINUSE\b", r"port .{0,20}(?:already )?in use", r"bind: ",
        r"read-only file ?system", r"\bEROFS\b",
        r"permission denied", r"\bEACCES\b", r"operation not permitted", r"access is denied",
        r"must (?:not )?(?:be )?run as (?:non-)?root",
    )),
    (Trouble.MISSING_FILE, _any(
        r"no such file or directory", r"executable file not found", r"command not found",
        r"(?:can(?:no|')t|could not) (?:find|open|stat|locate) (?:module|file|class|[\"'/.])",
        r"ModuleNotFoundError|ClassNotFoundException|ImportError|FileNotFound\w*", r"\bENOENT\b", r"no such file",
        r"file (?:\S+ )?(?:not found|does not exist|is missing)", r"unable to access jarfile",
    )),
    (Trouble.OTHER, _any(
        r"corrupt", r"checksum (?:mismatch|fail|error)", r"invalid (?:magic|page|block|checkpoint)",
        r"could not locate a valid checkpoint", r"bad superblock",
        r"(?:relation|table|column|schema|database) .{1,60}does not exist", r"no such table", r"migration",
        r"unknown column", r"undefined table",
    )),
    (Trouble.CRASH, _any(
        r"\bpanic\b", r"segmentation fault|SIGSEGV|\bsegfault\b", r"null ?pointer|nil pointer", r"unhandled|uncaught",
        r"traceback|stack ?trace", r"\bassert(?:ion)?\w* fail", r"fatal error|\bFATAL\b|\bCRITICAL\b", r"core dumped",
        r"\b\w+(?:Error|Exception)\b: ", r"aborting|exiting with (?:code|status|error)",
    )),
)  # fmt: skip

ERROR_LEVEL = re.compile(
    r"\b(?:FATAL|ERROR|ERR|CRIT(?:ICAL)?|EMERG(?:ENCY)?|ALERT|SEVERE|PANIC|Exception|Error|error|fatal|panic|emerg|crit)\b|"
    r"^[EF]\d{4} |\[emerg\]|Traceback|level=(?:error|fatal|panic)|\"(?:level|severity)\"\s*:\s*\"(?:error|fatal|panic|critical)"
)
QUIET_LEVEL = re.compile(
    r"\b(?:DEBUG|TRACE|INFO|NOTICE|WARN(?:ING)?)\b|level=(?:info|debug|warn)|\"(?:level|severity)\"\s*:\s*\"(?:info|debug|warn)|^[IW]\d{4} ",
    re.IGNORECASE,
)
STRONG_WHEN_QUIET = frozenset(
    {Trouble.DISK_FULL, Trouble.EXEC_FORMAT, Trouble.APP_MEMORY, Trouble.DB_FRAGMENTED, Trouble.POOL, Trouble.CERTIFICATE, Trouble.REFUSAL,
     Trouble.DNS, Trouble.DEPENDENCY, Trouble.MISSING_ENV, Trouble.CREDENTIALS}
)  # fmt: skip
ACCESS_LINE = re.compile(r'"(?:GET|POST|PUT|DELETE|HEAD|PATCH|OPTIONS) \S+ HTTP/[\d.]+[^"]*"?\s+[1-4]\d\d\b')
MESSAGES = frozenset(
    {"msg", "message", "error", "err", "reason", "exception", "detail", "cause", "stack", "error_severity"}
)
RECORDS = frozenset(
    ["record", "log", "error", "err", "exception", "fields", "attr", "attributes", "data", "context", "details", "payload"]
)  # fmt: skip
MAX_LINE = 4000  # characters
FOLDED = re.compile(r"(?<!\s)\s*\(repeated \d+ times?\)\s*$")


@dataclass(frozen=True, slots=True)
class Telling:
    """A line that says what went wrong. `position` counts from 0 at the start of the log."""

    trouble: Trouble
    line: str
    position: int
    loud: bool


def plain(line: str) -> str:
    """The words of a line: the message and error of a JSON line, else the line itself."""
    text = FOLDED.sub("", line).strip()
    if not text.startswith("{"):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    said = list(_said(value)) if isinstance(value, dict) else []
    return ": ".join(dict.fromkeys(said)) or text


def _said(value: dict[str, object]) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict) and key.lower() in RECORDS:
            yield from _said(item)
        elif isinstance(item, str) and key.lower() in MESSAGES and item.strip():
            yield item.strip()


def classify(line: str) -> Trouble | None:
    """The class of one message, or None."""
    if ACCESS_LINE.search(line):
        return None
    return next((trouble for trouble, pattern in CLASSES if pattern.search(line)), None)


def telling_lines(lines: Sequence[str], window: int = 120) -> list[Telling]:
    """Lines with a class in the last `window` lines, most telling first: loud before quiet, later first.

    A quiet line (info, warning, debug) counts only for classes that are clear at any level.
    """
    start = max(0, len(lines) - window)
    found: list[Telling] = []
    for position in range(len(lines) - 1, start - 1, -1):
        raw = lines[position][:MAX_LINE]
        line = plain(raw)
        trouble = classify(line)
        if trouble is None:
            continue
        quiet = bool(QUIET_LEVEL.search(raw)) and not ERROR_LEVEL.search(raw)
        if quiet and trouble not in STRONG_WHEN_QUIET:
            continue
        found.append(Telling(trouble, line, position, loud=not quiet))
    return sorted(found, key=lambda t: (t.trouble is Trouble.CRASH, not t.loud))
