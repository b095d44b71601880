"""The forms of a key and its value in a text, and the forms of values."""

from __future__ import annotations

import re

from worker.domain.untrusted.redaction.words import Span

LONGEST_QUOTED = 16 * 1024
QUOTE = r"(?:\\{0,15}[\"'`]|\\{1,15}u002[27]|&quot;|&#34;|&#39;)"


class Form:
    """A form of a key and its value in a text, and where to search for it.

    The key contains `key` and is followed by `after`, ignoring case. A match begins in the line of its key
    and may reach so many characters into the next lines; with 0 it may begin elsewhere.
    """

    def __init__(self, pattern: re.Pattern[str], after: str, *, key: str = "", reach: int = 1) -> None:
        self.pattern, self.reach = pattern, reach
        self.after, self.key = re.compile(after, re.IGNORECASE), re.compile(key)

    def begins(self, text: str, lines: list[Span]) -> list[Span]:
        """The places where a match may begin, by the lines of the keys."""
        return lines if self.reach or not lines else [(0, len(text))]


HINTS = (
    "pass", "pw", "psw", "secret", "token", "jwt", "bearer", "key", "cred", "auth", "cookie", "sig", "docker", "kubeconfig",
    "connection", "pat", "string", "phrase",
)  # fmt: skip
"""In lower case: every key that may name a secret contains one of them."""
HINT = re.compile("|".join(HINTS))
KEY = re.compile(r"[\w./-]{2,}+")
PAIR = re.compile(
    rf"(?<![\w./-])(?P<tail>(?<=\\)[nrt])?(?P<key>[\w./-]{{2,}}+)(?P<close>{QUOTE})?"
    rf"(?P<sep>[ \t]{{0,8}}(?:=>|:=|==|[:=]|%3[ADad]|\\{{1,15}}u003[ADad])[ \t]{{0,40}})(?P<open>{QUOTE})?"
)
FLAG = re.compile(
    rf"(?:(?<![\w-])|(?<=\\[nrt]))(?P<key>--?[A-Za-z][\w-]++|requirepass|masterauth)(?P<close>{QUOTE})?(?P<sep>[ \t]{{0,8}},?[ \t]{{0,8}}(?<=[ \t,]))"
    rf"(?P<open>{QUOTE})?(?![\s-])"
)
NAME_VALUE = re.compile(
    rf"(?:(?<![\w./-])|(?<=\\[nrt]))(?:name|key){QUOTE}?[ \t]{{0,8}}[:=][ \t]{{0,8}}{QUOTE}?(?P<key>[\w./-]{{2,}}+)(?P<close>{QUOTE})?"
    rf"[ \t]{{0,8}}+,?(?>(?:\\n|\\r|\s){{0,200}}){QUOTE}?value{QUOTE}?(?P<sep>[ \t]{{0,8}}[:=][ \t]{{0,8}})(?P<open>{QUOTE})?",
    re.IGNORECASE,
)
NESTED = re.compile(
    rf"(?<![\w./-])(?P<key>[\w.-]{{2,}}+){QUOTE}?\s{{0,40}}[:=]\s{{0,40}}\{{\s{{0,200}}{QUOTE}?"
    rf"(?:value|plain|plaintext|text|raw|current|new|old|string|content|base64)(?P<close>{QUOTE})?(?P<sep>[ \t]{{0,8}}[:=]\s{{0,200}})"
    rf"(?P<open>{QUOTE})?",
    re.IGNORECASE,
)
"""`"password": {{"value": "..."}}`: an object that holds nothing but the secret in another form."""
NOT_ALONE = frozenset({"key", "string", "phrase"})
LEADS = (
    "api", "access", "private", "account", "signing", "encryption", "license", "connection", "pass", "storage", "client",
)  # fmt: skip
LEAD_WORD = re.compile(rf"\b({'|'.join(LEADS)})[ _]\Z", re.IGNORECASE)
"""Words that make a following `key`, `string` or `phrase` a secret."""
TUPLE = re.compile(
    rf"\(\s{{0,40}}{QUOTE}(?P<key>[\w./-]{{2,}}+)(?P<close>{QUOTE})\s{{0,40}}(?P<sep>,)\s{{0,40}}(?P<open>{QUOTE})"
    rf"(?=[^\n\"'`]{{1,1024}}{QUOTE}\s{{0,40}},?\s{{0,40}}\))"
)
CELL = re.compile(
    r"(?<=[|\u2502])[ \t]*(?P<key>[\w.-]{2,}+)[ \t]*[|\u2502][ \t]*(?P<value>[^|\u2502\n]{3,256}?)[ \t]*(?=[|\u2502])"
)
FORMS = (
    Form(NAME_VALUE, rf"{QUOTE}?[ \t]{{0,8}},?(?>(?:\\n|\\r|\s){{0,200}}){QUOTE}?value", reach=1_024),
    Form(NESTED, rf"{QUOTE}?\s{{0,40}}[:=]\s{{0,40}}\{{", reach=1_024),
    Form(PAIR, rf"{QUOTE}?[ \t]{{0,8}}[:=%\\]"),
    Form(FLAG, rf"{QUOTE}?[ \t,]", key=r"(?:\A[nrt]|(?<![\w-]))--?[A-Za-z]|requirepass|masterauth"),
    Form(TUPLE, rf"{QUOTE}\s{{0,40}},", reach=0),
    Form(CELL, r"[ \t]*[|\u2502]"),
)
XML = re.compile(r"<(?P<key>[\w.:-]{2,}+)(?:\s[^<>]{0,200})?>(?P<value>[^<>]{1,4096}+)</")
BARE = re.compile(
    r"(?>(?:\[REDACTED:\w+\]|[^\s\"'`<>,;&()\[\]{}\\]|[,;&](?![\s,;&]|[\w.-]{1,40}[=:]|\Z)|[\"'`<>)\]}](?=\w)"
    r"|\\(?![nrt\"'])|[(\[{](?=\S))+)"
)
"""Atomic groups here and elsewhere: before Python 3.11.5 a possessive repeat of a group that backtracks
matches wrongly.
"""
JSON_VALUE = re.compile(r"(?P<bare>[^\s\"'`,{}\[\]]++)(?=[ \t]*+(?:[,}\]\n]|\Z))|[{\[]")
"""After a quoted key, JSON defines the end of a bare value; the content of a structure is examined
separately.
"""
AFTER_QUOTE = frozenset(" \t\r\n,;:}])>&|\\.\"'`")
CREDENTIALS = re.compile(r"(?:(?:bearer|basic|token|apikey|negotiate)[ \t]+)?", re.IGNORECASE)
BLOCK = re.compile(r"(?:![\w!]++[ \t]++)?(?:[|>][+-]?\d?[+-]?)?[ \t]*+(?:#[^\n]*+)?(?:\n|\Z)")
ESCAPED_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?[ \t]{0,8}(?>(?:\\{1,15}n(?:[ \t]+[^\\\"\n]*+|(?=\\)))+)")
FLAT_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?[ \t]+(?=\S)(?!\S+[ \t]+\|)")
"""For a block whose line ends were replaced by blanks, not for a table."""
LINE_LEAD = re.compile(r"(?:\A|\n|\\n)[ \t]*(?:- )?[ \t]*[\"']?\Z")
LONGEST_LEAD = 160
QUOTED_LIST = re.compile(
    r"\[\s{0,200}((?:\"[^\"\n]{1,1024}\"|'[^'\n]{1,1024}')(?:\s{0,200},\s{0,200}(?:\"[^\"\n]{1,1024}\"|'[^'\n]{1,1024}')){0,63})"
    r"\s{0,200},?\s{0,200}\]"
)
SCALAR_ITEM = re.compile(r"-[ \t]+(?![\w.\"'-]+:(?:[ \t]|\Z))(?P<scalar>\S.*)")
HEADER_COOKIES = re.compile(r"[^\n\"'`\\]*=[^\n\"'`\\]*")
"""All cookies of a header line: `a=1; b=2` (RFC 6265)."""
MARKED = re.compile(r"\[REDACTED:\w+\]")
MAPPING = re.compile(r"(?:- )?[\w.-]+:(?:\s|\Z)|- ")
ARN = re.compile(r"(?<![\w-])arn:[\w-]{1,20}:[^\s\"']*\Z")
LIST = re.compile(r"\[([^\[\]{}:\n]{1,2048})\]")
