"""Decides which keys hold secrets, and which of their values are not secrets.

Such keys are `DB_PASSWORD`, `clientSecret` or `x-api-key`.

A key is cut into words (`awsSecretAccessKey` -> aws, secret, access, key) and judged by its last words,
because that is where a key says what its value is: `token` is a secret, `tokenReview`, `token_type` and
`secretName` are not.
"""

from __future__ import annotations

import re

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PASSWORDS = tuple(_words("password passwords passwd passphrase passcode passwort pwd requirepass masterauth"))
TOKENS = ("token", "jwt", "bearer", "apitoken", "authtoken", "accesstoken")
KEYS = ("apikey", "accesskey", "secretkey", "privatekey", "keypair", "secretkeybase")
OTHERS = ("dockerconfigjson", "dockercfg", "kubeconfig", "connectionstring")
ENDINGS = (
    ("cookie", ("cookie", "cookies")),
    ("authorization", ("authorization",)),
    ("password", (*PASSWORDS, "pass")),
    ("token", TOKENS),
    ("key", KEYS),
    ("signature", ("signature",)),
    ("secret", OTHERS),
)
"""Endings of the last word of a key, and the kinds of their values."""
SHORT = {
    "pass": "password",
    "pw": "password",
    "psw": "password",
    "pat": "token",
    "sig": "signature",
    "auth": "auth",
}
"""Endings that count only as a whole word: `compass` and `pattern` name no secrets."""

KEY_OWNERS = _words(
    "api access private secret account signing encryption encrypt decryption master storage shared client ssh tls ssl rsa"
    " auth admin deploy subscription session hmac aes cipher consumer license licence webhook ingest ingestion write"
    " service application publisher host"
)
"""Words before `key` that make it a secret one, unlike `primary key`, `routing key` and `cache key`."""

MODIFIERS = _words(
    "value values data base base64 b64 b 64 hash hashed string text plain plaintext raw old new current previous next"
    " default encoded encrypted enc bytes content contents"
)
"""Words that may follow the deciding one: `PASSWORD_HASH`, `client-key-data`, `token1`."""

REFERRING = _words(
    "existing image pull name tls ca cert registry mount mounted missing kubernetes k8s refused rejected invalid bad expired"
    " wrong"
)
"""Words that make `secret` the name of an object or of a fault: `existingSecret`, `imagePullSecret`,
`refused_credentials`.
"""

NO_PASSWORD = _words("bypass compass encompass multipass overpass surpass trespass underpass")
"""Words that end like `storepass` but name no secrets."""

NO_VALUE = _words(
    "null none nil true false yes no undefined unset empty missing required optional string boolean number secret"
    " password token <none> <nil> <unset> <unknown> <redacted> <hidden> <masked> <empty> redacted hidden masked"
)
PROSE = _words(
    "a an and any are as at authentication authorization bad be been but by can cannot cant changed check contains could"
    " couldn context crypto decryption denied did does doesn error expired expires expiry failed failure field file for"
    " forbidden from has have header if illegal in incorrect invalid is isn it its key length lookup malformed may mismatch"
    " must never no not of on or permission please policy refresh refused rejected request revoked rotated rotation server should"
    " signature status that the there this timeout to too unable unauthorized unexpected unknown unsupported user validation"
    " verification verify was were when while will with wrong your"
)
"""Words that follow `token:` or `password:` in a sentence, in place of a value."""

MARKS = {"object": "secret", "signature": "secret", "directory": "password"}
"""The marks of kinds that are not marks themselves."""
MASK = re.compile(r"[*xX•.#-]{3,}|<[a-z ]{3,30}>?|\([a-z ]{3,30}\)|[0-9]{1,7} bytes")
DIGEST = re.compile(r"[A-Za-z0-9+/_=%-]{16}")
"""A part of any signature. What is shorter tells of one: `signature: valid`, `sig=SIGTERM`."""
DIRECTORY = re.compile(r"[.~/]|\.\.|[.~]{0,2}(?:/[a-z][a-z0-9._-]{0,63}){1,16}/?|[A-Za-z]:\\[\w\\. -]*")
SECRET_OBJECTS = re.compile(r"(?:\bimage pull|\bmountable) \Z", re.IGNORECASE)
"""Words before `secrets:` where kubectl lists names of Secret objects."""
STATEMENT = re.compile(r"[a-z]{3,40} (?:\"[\w.-]{1,63}\" )?([a-z]{2,12})(?: ([a-z]{2,12}))?\b")
CALL = re.compile(r"[A-Za-z_]\w{0,63}(?:\.\w{1,64}){1,8}\([^\n]*|[A-Za-z_]\w{0,63}\(\)?")
"""Source code in a traceback: `self.cache.get(key)`."""
REFERENCE = re.compile(
    r"\$\{[A-Za-z0-9_.]+\}|\$\([A-Za-z0-9_.]+\)|\$[A-Z][A-Z0-9_]*|\{\{[^{}]{1,200}\}\}|%[A-Z_]+%"
)
FILE_PATH = re.compile(r"(?:/[a-z0-9._-]{1,64}){2,16}")
NOT_SET = re.compile(
    r"(?:is )?(?:unset|unbound|undefined|missing|empty|required)[ \t]+(?:environment )?(?:variable|value|parameter|field)\b"
    r"|(?:parameter|variable)?[ \t]*(?:null or )?not (?:set|found|provided|given|defined)\b",
    re.IGNORECASE,
)
"""Words of a shell or a configuration reader in place of a variable's value."""
UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
OBJECT_NAME = re.compile(
    r"(?:[a-z0-9][a-z0-9.-]{0,62}/)?[a-z][a-z0-9]*(?:[.-][a-z0-9]+){1,10}|[a-z]{1,40}/[a-z]{1,40}"
)


def key_words(key: str) -> list[str]:
    """The words of a key in lower case: `awsSecretAccessKey` gives aws, secret, access, key."""
    return [w.lower() for w in WORD.findall(key[-128:])]


def secret_kind(key: str) -> str | None:
    """The kind of secret in the value of `key`: `password`, `token`, `key`, `secret`, ...

    None if the value is not a secret.

    `object` stands for keys whose value is a secret or the name of a Secret object, and `directory` for `pwd`,
    which is a password or the working directory: the value decides.
    """
    words = key_words(key)
    while len(words) > 1 and (words[-1] in MODIFIERS or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "id":
        return "key" if words[-3:-1] == ["access", "key"] or before == "secret" else None
    if last == "key":
        return "key" if before in KEY_OWNERS else None
    return _kind_of_word(last, before)


def _kind_of_word(last: str, before: str) -> str | None:
    if last == "pwd" and not before:
        return "directory"
    if last in SHORT:
        return SHORT[last] if last != "pat" or before else None
    for kind, endings in ENDINGS:
        if last.endswith(endings) and last not in NO_PASSWORD:
            return kind
    if last.endswith(("secret", "secrets", "credential", "credentials", "creds")):
        return None if before in REFERRING else "object"
    return None


def mark_of(kind: str) -> str:
    """The mark that replaces a secret of this kind."""
    return f"[REDACTED:{MARKS.get(kind, kind)}]"


def is_no_secret(value: str, kind: str) -> bool:
    """True if the value of a secret key is not itself a secret.

    Such values are empty, masks, references, file paths and names of objects.
    """
    text = value.strip()
    low = text.lower()
    if not text or low in NO_VALUE or text.startswith("<set to the key ") or NOT_SET.match(text):
        return True
    if any(form.fullmatch(text) for form in (MASK, REFERENCE, FILE_PATH, CALL)):
        return True
    if kind == "signature":
        return DIGEST.search(text) is None
    if kind == "directory":
        return DIRECTORY.fullmatch(text) is not None
    return kind == "object" and (_names_an_object(text) or (text.isdigit() and len(text) < 6))


def is_prose(value: str) -> bool:
    """True if an unquoted value starts like a sentence: `token: signature is invalid`."""
    word = re.match(r"([A-Za-z]+)(?:[\s.,:;!?']|\Z)", value)
    return word is not None and word[1].lower() in PROSE


def is_statement(line: str) -> bool:
    """True if a line continues like a sentence about a thing.

    Examples: `secrets is forbidden`, `serviceaccounts "api" not found`.
    """
    words = STATEMENT.match(line)
    return words is not None and any(word and word.lower() in PROSE for word in words.groups())


def _names_an_object(text: str) -> bool:
    """True for `registry-credentials`, also if a statement follows: `registry-credentials not found`."""
    name, _, rest = text.partition(" ")
    return looks_like_object_name(name.rstrip(":,")) and (not rest or is_prose(rest))


def looks_like_object_name(text: str) -> bool:
    """True if text reads like `registry-credentials` or `shop/db-auth`: words joined by hyphens, few digits."""
    if UUID.fullmatch(text) or not OBJECT_NAME.fullmatch(text):
        return False
    return sum(c.isdigit() for c in text) * 3 <= len(text)


def looks_random(text: str) -> bool:
    """True if text mixes upper case, lower case and digits as no Kubernetes name does (those are lower case)."""
    if len(text) < 10 or text.isalpha() or text.islower() or text.isupper():
        return False
    return (
        any(c.islower() for c in text)
        and any(c.isupper() for c in text)
        and sum(c.isdigit() for c in text) >= 2
    )
