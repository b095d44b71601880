"""Canaries: invented secrets in the forms that secrets have, each with a marker beside it, and the search for them.

A canary is lost when a part of its secret shows up anywhere, however it is spelled. Its marker must show up: it proves that
the text around the secret was read.
"""

from __future__ import annotations

import base64
import html
import json
import random
import re
import string
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
BASE32 = string.ascii_uppercase + "234567"
HEX = "0123456789abcdef"
WINDOW = 9
"""So many characters of a secret in a row are a leak."""
BLOB = re.compile(r"[A-Za-z0-9+/_-]{16,}")


class Mint:
    """Makes the secrets of one canary, and keeps what must not be seen of them."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self.windows: list[str] = []

    def __call__(self, length: int = 20, alphabet: str = ALNUM) -> str:
        """A random secret."""
        made = "".join(self._random.choices(alphabet, k=length))
        self.windows += [made[:WINDOW], made[-WINDOW:]]
        return made

    def b64(self, text: str) -> str:
        """The base64 of a text that ends with a secret."""
        made = base64.b64encode(text.encode()).decode()
        self.windows += [made[-24 : -24 + WINDOW], made[-15 : -15 + WINDOW]]
        return made

    def pem(self) -> str:
        """A private key of four lines."""
        body = "\n".join(self(64) for _ in range(4))
        return f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"


Form = Callable[[Mint], str]

FORMS: dict[str, Form] = {
    "openai": lambda m: f"sk-proj-{m(48)}",
    "anthropic": lambda m: f"sk-ant-api03-{m(60)}",
    "aws_id": lambda m: f"AKIA{m(16, UPPER)}",
    "aws_secret": lambda m: f"aws_secret_access_key = {m(40)}",
    "google_key": lambda m: f"AIza{m(35)}",
    "google_oauth": lambda m: f"ya29.{m(60)}",
    "google_client": lambda m: f"GOCSPX-{m(28)}",
    "azure_client": lambda m: f"abc8Q~{m(34)}",
    "azure_storage": lambda m: (
        f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={m(86)}==;EndpointSuffix=core.windows.net"
    ),
    "azure_sas": lambda m: f"https://shop.blob.core.windows.net/c?sv=2022-11-02&sig={m(43)}%3D",
    "github": lambda m: f"ghp_{m(36)}",
    "github_fine": lambda m: f"github_pat_{m(22)}_{m(59)}",
    "gitlab": lambda m: f"glpat-{m(20)}",
    "slack": lambda m: f"xoxb-2345678901-{m(24)}",
    "slack_hook": lambda m: f"https://hooks.slack.com/services/T0123/B0123/{m(24)}",
    "discord_hook": lambda m: f"https://discord.com/api/webhooks/123456789012345678/{m(68)}",
    "stripe": lambda m: f"sk_live_{m(24)}",
    "stripe_hook": lambda m: f"whsec_{m(32)}",
    "sendgrid": lambda m: f"SG.{m(22)}.{m(43)}",
    "npm": lambda m: f"npm_{m(36)}",
    "pypi": lambda m: f"pypi-{m(60)}",
    "huggingface": lambda m: f"hf_{m(34)}",
    "docker_hub": lambda m: f"dckr_pat_{m(27)}",
    "digitalocean": lambda m: f"dop_v1_{m(64, HEX)}",
    "grafana": lambda m: f"glsa_{m(32)}_{m(8, HEX)}9",
    "vault": lambda m: f"hvs.{m(90)}",
    "new_relic": lambda m: f"NRAK-{m(27, UPPER)}",
    "telegram": lambda m: f"123456789:AA{m(33)}",
    "nkey": lambda m: f"SUA{m(55, BASE32)}",
    "age": lambda m: f"AGE-SECRET-KEY-1{m(58, UPPER)}",
    "bearer": lambda m: f"Authorization: Bearer {m(32)}",
    "basic": lambda m: f"Authorization: Basic {m.b64('robot:' + m(24))}",
    "jwt": lambda m: f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{m(40)}.{m(43)}",
    "pem": Mint.pem,
    "pem_escaped": lambda m: json.dumps({"private_key": m.pem()}),
    "pem_base64": lambda m: m.b64(f"-----BEGIN PRIVATE KEY-----\n{m(64)}"),
    "postgres_url": lambda m: f"postgres://app:{m()}@db.shop:5432/orders",
    "mysql_url": lambda m: f"mysql://root:{m()}@10.0.0.7/orders",
    "redis_url": lambda m: f"redis://:{m()}@cache:6379/0",
    "amqp_url": lambda m: f"amqps://guest:{m()}@queue:5671/%2F",
    "mongo_url": lambda m: f"mongodb+srv://app:{m()}@cluster0.example.net/?retryWrites=true",
    "git_url": lambda m: f"https://oauth2:{m()}@git.example.com/shop/api.git",
    "token_url": lambda m: f"https://{m(40, HEX)}@git.example.com/shop/api.git",
    "query_url": lambda m: f"GET https://api.example.com/v1/items?page=2&access_token={m(32)}&sort=up",
    "go_dsn": lambda m: f"app:{m()}@tcp(db:3306)/orders",
    "jdbc": lambda m: f"jdbc:postgresql://db/orders?user=app&password={m()}",
    "ado_net": lambda m: f"Server=db;Database=orders;User Id=sa;Password={m()};Encrypt=yes",
    "libpq": lambda m: f"host=db user=app password={m()} sslmode=disable",
    "key_value": lambda m: f"DB_PASSWORD={m()}",
    "quoted": lambda m: f"export API_TOKEN='{m(16)} {m(12)}'",
    "spring": lambda m: f"spring.datasource.password={m()}",
    "flag": lambda m: f"exec /bin/app --password {m()} --verbose",
    "curl_user": lambda m: f"curl -u admin:{m()} https://api.example.com",
    "sshpass": lambda m: f"sshpass -p {m()} ssh ops@bastion",
    "api_key_header": lambda m: f"X-Api-Key: {m(32)}",
    "cookie": lambda m: f"Set-Cookie: session={m(32)}; HttpOnly",
    "json": lambda m: json.dumps({"user": "app", "password": m()}),
    "json_twice": lambda m: json.dumps({"log": json.dumps({"clientSecret": m(32)})}),
    "python": lambda m: repr({"user": "app", "api_key": m(32)}),
    "yaml": lambda m: f"clientSecret: {m(32)}",
    "yaml_block": lambda m: f"password: |\n  {m(24)}\nuser: app",
    "secret_yaml": lambda m: (
        f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  value: {m.b64(m(24))}"
    ),
    "secret_json": lambda m: json.dumps({"kind": "Secret", "data": {"value": m.b64(m(24))}}),
    "docker_config": lambda m: json.dumps(
        {"auths": {"registry.example.com": {"auth": m.b64("ci:" + m(24))}}}
    ),
    "base64_pair": lambda m: m.b64(f"password={m(24)}"),
    "base64_json": lambda m: m.b64(json.dumps({"token": m(32)})),
    "base64_url": lambda m: m.b64(f"postgres://app:{m(24)}@db"),
    "base64_twice": lambda m: m.b64(m.b64(f"DB_PASSWORD={m(24)}")),
    "xml": lambda m: f"<user>app</user><password>{m()}</password>",
    "sentence": lambda m: f'the password is "{m()}" as before',
    "sql": lambda m: f"CREATE USER 'app' IDENTIFIED BY '{m()}'",
    "bcrypt": lambda m: f"app:$2y$10${m(53)}",
    "shadow": lambda m: f"root:$6$saltsalt${m(86)}:19000",
    "url_encoded": lambda m: f"grant_type=password&username=app&password={m(16)}%21%2F{m(12)}",
}

NUMBERS = {form: number for number, form in enumerate(FORMS, 100)}
"""Names in markers: a key that tells what it holds would give its value away."""


@dataclass(frozen=True)
class Canary:
    """One secret at one place. `text` is what is planted; `windows` are the parts of it that nobody may see."""

    place: str
    form: str
    marker: str
    text: str
    windows: tuple[str, ...]

    @property
    def line(self) -> str:
        """The secret behind its marker; a document begins on a line of its own."""
        return f"{self.marker}{chr(10) if chr(10) in self.text else ' '}{self.text}"


@dataclass
class Aviary:
    """All canaries that were planted."""

    planted: list[Canary] = field(default_factory=list)

    def at(self, place: str, *, forms: Iterable[str] = FORMS) -> list[Canary]:
        """New canaries for a place, one of each form."""
        made = []
        for form in forms:
            mint = Mint(f"{place}/{form}")
            text = FORMS[form](mint)
            marker = f"near-{place}-{NUMBERS[form]}"
            made.append(Canary(place, form, marker, text, tuple(mint.windows)))
        self.planted += made
        return made

    def seen_in(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """Place and form of every canary of which a part stands in one of the texts, in any spelling."""
        whose = {window: (canary.place, canary.form) for canary in self.planted for window in canary.windows}
        found: set[tuple[str, str]] = set()
        for text in set(texts):
            for spelled in set(spellings(text)):
                parts = {spelled[at : at + WINDOW] for at in range(len(spelled) - WINDOW + 1)}
                found |= {whose[window] for window in parts & whose.keys()}
        return sorted(found)


def spellings(text: str) -> Iterator[str]:
    """The text as it is, without escapes, without line ends, and what stands in it as base64, twice over."""
    plain = urllib.parse.unquote(html.unescape(re.sub(r"\\+u00([0-9a-f]{2})", _character, text)))
    joined = re.sub(r"\\+[nrt]|[\\\s]+", "", plain)
    yield from (text, plain, joined)
    inner = "\n".join(decoded(plain))
    if inner:
        yield inner
        yield "\n".join(decoded(inner))


def decoded(text: str) -> Iterator[str]:
    """What the runs of base64 in a text say."""
    for blob in BLOB.findall(text):
        cut = blob[: len(blob) // 4 * 4].replace("-", "+").replace("_", "/")
        yield base64.b64decode(cut + "=" * (-len(cut) % 4)).decode("latin-1")


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))
