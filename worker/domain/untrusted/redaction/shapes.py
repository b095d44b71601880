"""Secrets that are known by their shape: PEM blocks, JWTs, keys with a vendor's prefix, and passwords in URLs.

Each shape has needles, one of which occurs in every secret of the shape, so that most texts cost a substring
search in their distinct words, and a pattern that reads every character a bounded number of times. The
prefixes are those the vendors publish.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from worker.domain.untrusted.redaction import names
from worker.domain.untrusted.redaction.words import folded, lines_with, mask_lines, with_group, with_zeros

Check = Callable[[str], bool]
EDGE = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
"""The start of a word, also after a line end or a tab that JSON has escaped."""
MARKED = re.compile(r"\[REDACTED:\w+\]")
QUANTITY = re.compile(r"\d+[a-z]*", re.IGNORECASE)
ALNUM_RUN = re.compile(r"[A-Za-z0-9]{24,}")


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A shape of secrets.

    The secret is group 1 of the pattern, or the whole match without one, if `check` agrees and it is not
    masked yet.

    One of the `needles` occurs in every match. Matches are searched for in the lines in which `line` is
    found, by default the needles; everywhere if a match `spans_lines`.
    """

    kind: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Check | None = None
    line: re.Pattern[str] | None = None
    spans_lines: bool = False

    def mask(self, text: str) -> str:
        """The text with every secret of this shape replaced."""
        if self.spans_lines:
            return self.mask_all(text)
        if self.pattern.flags & re.IGNORECASE:
            lines = lines_with(folded(text), {needle.lower() for needle in self.needles})
        else:
            lines = lines_with(text, [self.line] if self.line else self.needles)
        return mask_lines(text, lines, self.mask_all)

    def mask_all(self, text: str) -> str:
        """The text with every secret of this shape replaced, if every line may contain one."""
        return self.pattern.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        group = 1 if match.re.groups else 0
        secret = match.group(group)
        if MARKED.fullmatch(secret) or (self.check is not None and not self.check(secret)):
            return match.group()
        return with_group(match, group, f"[REDACTED:{self.kind}]")


def _is_bearer(token: str) -> bool:
    """True for a token, which has digits or mixed case or is long.

    `Bearer authentication failed` is a sentence.
    """
    if token.startswith(("realm=", "error=", "scope=", "service=")):
        return False
    return any(c.isdigit() for c in token) or len(token) >= 24 or not (token.islower() or token.istitle())


def _is_llm_key(token: str) -> bool:
    """True for a key, which has upper-case letters or one long run. `sk-runner-757f89d977-795x7` is a pod."""
    run = ALNUM_RUN.search(token)
    return token != token.lower() or (run is not None and any(c.isdigit() for c in run.group()))


def _prefixed(kind: str, prefixes: str, rest: str, check: Check | None = None) -> Shape:
    """The shape of a word that begins with one of the prefixes and continues like the pattern `rest`."""
    needles = tuple(prefixes.split())
    return Shape(kind, needles, re.compile(f"{EDGE}(?:{'|'.join(map(re.escape, needles))}){rest}"), check)


SHAPES: tuple[Shape, ...] = (
    Shape(
        "pem",
        ("-----BEGIN",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{1,40}-----"
            r"(?:(?>(?:-(?!----)|[^-])*)-----END [A-Z0-9 ]{1,40}-----"
            r"|(?>(?:[A-Za-z0-9+/=]|\\[nr]|\s+(?=[A-Za-z0-9+/=]++[ \t]*+(?:\n|\\|\Z))"
            r"|\n[^\n]{1,120}?(?=(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{20,}+={0,2}[ \t]*+(?:\n|\Z)))*))"
        ),
        spans_lines=True,
    ),
    Shape("pem", ("LS0tLS1CRUdJTi",), re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]*+={0,2}")),
    Shape("jwt", ("eyJ",), re.compile(EDGE + r"eyJ[\w-]{6,}+(?:\.[\w-]{2,}+(?:\.[\w-]*+)?)?")),
    Shape(
        "token",
        ("earer", "EARER"),
        re.compile(EDGE + r"bearer(?:[ \t]+|%20|\\u0020)([A-Za-z0-9._~+/=-]{8,}+)", re.IGNORECASE),
        _is_bearer,
    ),
    _prefixed("aws", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{12,20}(?![A-Za-z0-9])"),
    _prefixed("gcp", "AIza", r"[\w-]{30,}+"),
    _prefixed("gcp", "ya29. GOCSPX-", r"[\w-]{16,}+"),
    Shape("azure", ("8Q~",), re.compile(r"(?<![\w~.-])[\w~.-]{3}8Q~[\w~.-]{30,}+")),
    _prefixed("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9_]{16,}+"),
    _prefixed("github", "github_pat_", r"\w{16,}+"),
    _prefixed(
        "gitlab", "glpat- gldt- glrt- glcbt- glptt- glft- gloas- glsoat- glagent- glimt-", r"[\w.-]{16,}+"
    ),
    Shape("slack", ("xox", "xapp-"), re.compile(EDGE + r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[\w-]{8,}+")),
    Shape(
        "slack",
        ("hooks.slack.com/",),
        re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{16,}+)"),
    ),
    Shape("webhook", ("/api/webhooks/",), re.compile(r"/api/webhooks/\d{10,24}/([\w-]{20,}+)")),
    _prefixed("llm_key", "sk-", r"[\w-]{16,}+", _is_llm_key),
    Shape(
        "stripe",
        ("k_live_", "k_test_", "whsec_"),
        re.compile(EDGE + r"(?:[srp]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{10,}+"),
    ),
    _prefixed("sendgrid", "SG.", r"[\w-]{16,}+\.[\w-]{16,}+"),
    _prefixed(
        "token",
        "npm_ pypi- hf_ dckr_pat_ dop_v1_ doo_v1_ dor_v1_ shpat_ glsa_ lin_api_ nvapi- gsk_ xai- NRAK-",
        r"([\w-]{20,}+)",
        lambda body: body != body.lower() or ALNUM_RUN.search(body) is not None,
    ),
    _prefixed("vault", "hvs. hvb. hvr.", r"[\w-]{16,}+"),
    Shape("telegram", (":AA",), re.compile(r"(?<!\d)\d{8,12}:AA[\w-]{30,}+")),
    Shape(
        "nkey",
        ("SU", "SA", "SO", "SN", "SC"),
        re.compile(EDGE + r"S[UAONC][A-Z2-7]{56}(?![A-Z0-9])"),
        line=re.compile(r"S[UAONC][A-Z2-7]{56}"),
    ),
    Shape("age", ("AGE-SECRET-KEY-",), re.compile(r"AGE-SECRET-KEY-1[A-Z0-9]{16,}+")),
    Shape(
        "hash",
        ("$2", "$5$", "$6$", "$1$", "$y$", "$argon2", "$apr1$", "SCRAM-SHA"),
        re.compile(r"(?:\$(?:2[abxy]|[156y]|apr1|argon2\w{0,2})\$|SCRAM-SHA-\d+\$)[A-Za-z0-9./,=$:+]{8,}+"),
    ),
    Shape(
        "password",
        ("@tcp(", "@unix(", "@udp("),
        re.compile(r"(?<![^\s\"'`=])[^\s:\"'@]{1,64}+:([^\s\"']{1,256})@(?:tcp|unix|udp)\("),
    ),
    Shape(
        "password",
        ("-u", "--user"),
        re.compile(r"(?<!\S)(?:-u|--user)[ =]?[\"']?[^\s:\"'@/]{1,64}+:([^\s\"'/]{3,256}+)(?![\w/])"),
        lambda secret: not secret.isdigit(),
        line=re.compile(r"(?<!\S)--?u"),
    ),
    Shape(
        "password",
        ("sshpass", "mysql", "login"),
        re.compile(
            EDGE + r"(?:sshpass|mysql(?:dump|admin)?|(?:docker|podman|helm registry) login)\b"
            r"(?:[ \t]+[^\s|;&]{1,128}+){0,12}?[ \t]+-p[ \t]*[\"']?([^\s\"'-][^\s\"']{2,255}+)"
        ),
    ),
    Shape(
        "password",
        ("redis-cli", "valkey-cli"),
        re.compile(
            r"(?:redis|valkey)-cli\b(?:[ \t]+[^\s|;&]{1,128}+){0,12}?[ \t]+(?:-a|--pass)[ \t=]*[\"']?([^\s\"'-][^\s\"']{2,255}+)"
        ),
    ),
    Shape(
        "password",
        ("jdbc:oracle", "sqlplus", "sqlldr", "expdp", "impdp"),
        re.compile(
            r"(?:jdbc:oracle:\w{2,8}:|(?:sqlplus|sqlldr|expdp|impdp)(?:[ \t]+-\w+)*[ \t]+[\"']?)"
            r"[^\s/@:\"']{1,64}+/([^\s/@\"']{1,128}+)@"
        ),
    ),
    Shape(
        "password",
        (":0000:", ":00000:", ":*:"),
        re.compile(
            r"(?<![^\s\"'`=])(?:\*|[A-Za-z0-9](?>(?:[\w.-]{0,252}\w)?)):(?:\*|[0-9]{4,5}):(?:\*|(?=[\d.-]*[A-Za-z_])[\w.-]{1,63}+)"
            r":(?:\*|(?=[\d.@-]*[A-Za-z_])[\w.@-]{1,63}+):([^\s\"'`:]{3,256}+)(?=[\s\"'`]|\Z)"
        ),
        line=re.compile(r":(?:\*|[0-9]{4,5}):"),
    ),  # a line of .pgpass: host:port:database:user:password
    Shape(
        "password",
        ("@",),
        re.compile(
            r"(?<![\w/:@.%+\[-])(?!mailto:|sip:|acct:|xmpp:)[A-Za-z_][\w.-]{0,63}+:([^\s:/@\"'`<>]{3,128}+)"
            r"@(?!sha\d{1,3}:)[A-Za-z0-9][\w.-]{0,252}(?::\d{2,5}+)?/[\w?]"
        ),
    ),  # user:password@host/database without a scheme
    Shape(
        "password",
        ("IDENTIFIED", "dentified", "PASSWORD", "assword"),
        re.compile(
            r"(?:\bidentified\s{1,4}by|\bpassword(?:\s{1,4}(?:is|was|=))?)\s{1,4}(?:password\s)?"
            r"\\{0,15}[\"'`]([^\"'`\n]{1,256}?)\\{0,15}[\"'`]",
            re.IGNORECASE,
        ),
        lambda secret: not secret.startswith("[REDACTED:"),
        spans_lines=True,
    ),
    Shape(
        "password",
        ("PASS", "Pass", "pass"),
        re.compile(
            r"\bpass(?:word|phrase|code|wd)[ \t]{1,4}(?:is|was)[ \t]{0,4}:?[ \t]{1,4}"
            r"((?=[^\s]{0,64}[A-Za-z])(?=[^\s]{0,64}[0-9!@#$%^&*+=~])[^\s\"'`\[\](){}<>,;/:]{5,63}[^\s\"'`\[\](){}<>,;/:.])"
            r"(?=[.,;!]?[\"'`)\]}]{0,2}(?:[ \t]*(?:\n|\\n|\Z)|[,;]))",
            re.IGNORECASE,
        ),
        lambda secret: not names.looks_like_object_name(secret) and QUANTITY.fullmatch(secret) is None,
    ),  # the end of a statement, not a word of a sentence that goes on: `the password is hunter2`
)

HINTS = tuple(
    (with_zeros(needle).split()[0], shape) for shape in SHAPES for needle in dict.fromkeys(shape.needles)
)
"""Texts of which one occurs in the `distinct_words` of every text with a secret of the shape."""


PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]*")
LONGEST_MIXED_NAME = 11
"""Characters of a name that is too short to be read as base64, whatever its letters."""
NAME_NEEDLE = re.compile(
    "|".join(re.escape(n) for shape in SHAPES for n in shape.needles if PLAIN_NAME.fullmatch(n))
)


def is_plain_name(text: str) -> bool:
    """True if a text is a name without the form of a secret. A key with a value does not fit into one."""
    if PLAIN_NAME.fullmatch(text) is None or not (len(text) <= LONGEST_MIXED_NAME or text.islower()):
        return False
    return NAME_NEEDLE.search(text) is None


def mask_shapes(text: str, words: str) -> str:
    """The text with every secret of a known shape replaced. `words` are its `distinct_words`."""
    for shape in dict.fromkeys([shape for hint, shape in HINTS if hint in words]):
        text = shape.mask(text)
    return text


RANDOM_WORD = re.compile(
    r"(?<![\w./+=-])(?=[\w!#$%*+./=?@^~-]{0,127}[0-9])(?=[\w!#$%*+./=?@^~-]{0,127}[A-Za-z])"
    r"[A-Za-z0-9][\w!#$%*+./=?@^~-]{9,127}+"
)
CALLED_SECRET = re.compile(
    r"\b(?:passw(?:or)?ds?|passphrase|secret|token|credentials?|api[ _-]?key)(?:[ \t]+[A-Za-z]{1,12}){0,4}[ \t]*[:=]?[ \t]*[\"'`(]?\Z",
    re.IGNORECASE,
)
GENERATED = re.compile(r"[A-Za-z0-9+/_]{16,}={0,2}")
"""A key in hex or base64: no word of a sentence, and no name with hyphens."""
STATED = re.compile(r"\b(?:secret|token|api[ _-]?key)[ \t]{1,4}(?:is|was)[ \t]{1,4}\Z", re.IGNORECASE)
KEY_BEFORE = re.compile(r"[\w.-]{2,64}")
PROSE_HINTS = ("assword", "ASSWORD", "assphrase", "ecret", "ECRET", "oken", "OKEN", "redential", "ey", "KEY")
CALLED = ("passw", "passphrase", "secret", "token", "credential", "apikey", "api key", "_key", "-key")
"""One of them occurs in every line with a word that is called a secret."""


def mask_prose(text: str, words: str) -> str:
    """Mask random-looking words that a sentence or the key before them calls a secret.

    Examples: `the Secret now holds Kx93mQ2vT7`, `token is 0f1e2d3c4b5a6978`, `DB_PASSWORD hunter2hunter2`.
    `words` are the `distinct_words` of the text.
    """
    if not any(hint in text for hint in PROSE_HINTS):
        return text
    lines = lines_with(folded(text), CALLED)
    if not lines or RANDOM_WORD.search(words) is None:
        return text
    return mask_lines(text, lines, lambda line: RANDOM_WORD.sub(_mask_random, line))


def _mask_random(match: re.Match[str]) -> str:
    word = match.group().rstrip(".")
    before = match.string[max(0, match.start() - 80) : match.start()]
    stated = GENERATED.fullmatch(word) and sum(map(str.isdigit, word)) >= 4 and STATED.search(before)
    called = stated or (names.looks_random(word) and CALLED_SECRET.search(before))
    kind = "secret" if called else _kind_by_key(word, before)
    return f"{names.mark_of(kind)}{match.group()[len(word) :]}" if kind else match.group()


def _kind_by_key(word: str, before: str) -> str | None:
    """The kind of secret if the word before this one is a key, such as `aws_secret_access_key`.

    A single word, such as `token`, may belong to a sentence.
    """
    key = before.rsplit(maxsplit=1)[-1] if before[-1:] in {" ", "\t"} and before.strip() else ""
    many = KEY_BEFORE.fullmatch(key) is not None and len(names.key_words(key)) > 1
    kind = names.secret_kind(key) if many else None
    is_password = kind == "password" and not names.looks_like_object_name(word)
    return kind if is_password or (kind in {"token", "key"} and GENERATED.fullmatch(word)) else None


PEM_END = re.compile(r"-----END [A-Z0-9 ]{1,40}-----")
PEM_LINE = re.compile(r"\s*[A-Za-z0-9+/=]*\s*")
LINE_END = re.compile(r"\n|\\n")
LONGEST_PEM = 16 * 1024


def mask_pem_tails(text: str) -> str:
    """Mask the rest of a PEM block whose beginning was cut off.

    The tail of a log may begin in the middle of a block.
    """
    parts: list[str] = []
    done = 0
    for end in PEM_END.finditer(text):
        start = _pem_start(text, max(done, end.start() - LONGEST_PEM), end.start())
        parts += (text[done:start], "[REDACTED:pem]")
        done = end.end()
    return "".join((*parts, text[done:])) if parts else text


def _pem_start(text: str, first: int, end: int) -> int:
    """The start of the lines of base64 before `end`, not before `first`."""
    start = edge = end
    for line_end in reversed(list(LINE_END.finditer(text, first, end))):
        if PEM_LINE.fullmatch(text, line_end.end(), edge) is None:
            return start
        start, edge = line_end.end(), line_end.start()
    return first if PEM_LINE.fullmatch(text, first, edge) else start


AFTER_SCHEME = re.compile(r"(?<=://)[^\s\"'<>]+")
PORT_AND_PATH = re.compile(r"\d{1,5}[/?#,]")
LONGEST_USER = 256
LONGEST_PASSWORD = 512


def mask_url_credentials(text: str) -> str:
    """Passwords of URLs (`scheme://user:password@host`, RFC 3986), and tokens in place of the user."""
    if "://" not in text or "@" not in text:
        return text
    return mask_lines(text, lines_with(text, ["@"]), _mask_urls)


def _mask_urls(line: str) -> str:
    return AFTER_SCHEME.sub(
        lambda m: "://".join(_mask_user_info(part) for part in m.group().split("://")), line
    )


def _mask_user_info(rest: str) -> str:
    """`rest` is what follows `://`. A password may hold `@`, and one that was not encoded may hold `/`."""
    cut = re.search(r"[/?#]", rest)
    authority = rest[: cut.start()] if cut else rest
    end = authority.rfind("@")
    colon = rest.find(":", 0, LONGEST_USER)
    if end == -1:
        end = rest.find("@", 0, LONGEST_PASSWORD)
        if end == -1 or not -1 < colon < min(end, len(authority)) or PORT_AND_PATH.match(rest, colon + 1):
            return rest
    if rest.startswith("["):
        return rest
    if -1 < colon < end:
        later = rest.rfind("@", end, LONGEST_PASSWORD)
        end = later if not rest.startswith("@sha256:", later) else end
        secret = rest[colon + 1 : end]
        return (
            rest
            if not secret or MARKED.fullmatch(secret)
            else f"{rest[: colon + 1]}[REDACTED:password]{rest[end:]}"
        )
    return f"[REDACTED:token]{rest[end:]}" if end >= 20 and "." not in authority[:end] else rest
