"""The analyst's vocabularies: log lines, hosts, catalog texts, action names, signal names, parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst import concepts, objections, parameters
from worker.sandbox.analyst.concepts import ClauseTruth
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.loglines import Trouble, classify, telling_lines
from worker.sandbox.analyst.remedies import NAMES, remedy_of, words_of
from worker.sandbox.analyst.rules.hosts import Host, hosts_in, place_of
from worker.sandbox.analyst.signals import choose_signal, closest

LINES = {
    Trouble.DEPENDENCY: [
        "dial tcp 10.96.7.7:6379: connect: connection refused",
        "could not connect to server: Connection refused",
        'psycopg2.OperationalError: connection to server at "db", port 5432 failed: timeout expired',
        "Caused by: java.net.ConnectException: Connection refused",
        "Error: connect ECONNREFUSED 10.0.0.3:5672",
        "waiting for redis",
        "Connection to node -1 (kafka/10.1.1.1:9092) could not be established. Broker may not be available.",
        "All host(s) tried for db query failed (tried: main-db:3333)",
        "upstream http://orders:8000/list: 502 bad gateway",
        "redis.exceptions.ConnectionError: Error 111 connecting to cache:6379.",
        "Failed to establish a new connection: [Errno 111]",
        'Post "http://a:1/x": context deadline exceeded',
    ],
    Trouble.DNS: [
        "dial tcp: lookup db on 10.96.0.10:53: no such host",
        "getaddrinfo ENOTFOUND cache",
        'could not translate host name "postgres" to address: Name or service not known',
        "java.net.UnknownHostException: mysql",
        "nslookup: can't resolve 'redis'",
        "wget: bad address 'api:80'",
    ],
    Trouble.CONFIG: [
        'nginx: [emerg] unknown directive "liste" in /etc/nginx/nginx.conf:3',
        "yaml: line 2: mapping values are not allowed in this context",
        "Error: failed to parse /etc/app/app.toml: line 2: expected value",
        'FATAL:  unrecognized configuration parameter "wal_lvl" in file "/etc/postgresql/postgresql.conf" line 2',
        "invalid configuration: port must be a number",
        "json: cannot unmarshal string into Go struct field Config.port of type int",
    ],
    Trouble.MISSING_ENV: ["required environment variable ISSUER_URL is not set", "KeyError: 'DATABASE_URL'", "DB_HOST must be set"],
    Trouble.CREDENTIALS: [
        'FATAL: password authentication failed for user "app"',
        "ERROR 1045 (28000): Access denied for user 'stock'@'10.1.2.3' (using password: YES)",
        "WRONGPASS invalid username-password pair",
        "MongoServerError: Authentication failed.",
    ],
    Trouble.CERTIFICATE: ["x509: certificate has expired or is not yet valid", "SSL certificate expired", "ExpiredCertException: Certificate expired on 2024-08-03", "certificate verify failed: self-signed certificate"],
    Trouble.DISK_FULL: ["write /data/x: no space left on device", 'ERROR: could not extend file "base/1": No space left', "Detected low-disk space condition, avoid starting", "disk is full"],
    Trouble.POOL: ["FATAL:  sorry, too many clients already", "Too many connections", "HikariPool-1 - Connection is not available: connection pool exhausted", "remaining connection slots are reserved"],
    Trouble.APP_MEMORY: ["java.lang.OutOfMemoryError: Java heap space", "FATAL ERROR: JavaScript heap out of memory", "fork: Cannot allocate memory"],
    Trouble.EXEC_FORMAT: ["exec /app: exec format error"],
    Trouble.RBAC: ['pods is forbidden: User "system:serviceaccount:a:b" cannot list resource "pods"'],
    Trouble.MESH: ["403 RBAC: access denied"],
    Trouble.PORT_IN_USE: ["listen tcp :8080: bind: address already in use"],
    Trouble.PERMISSION: ["open /data/db: permission denied"],
    Trouble.MISSING_FILE: ["ModuleNotFoundError: No module named 'numpyy'", "stat /etc/app/x.yaml: no such file or directory"],
    Trouble.CRASH: ["panic: runtime error: index out of range", "Segmentation fault (core dumped)"],
}  # fmt: skip


@pytest.mark.parametrize(("trouble", "line"), [(t, line) for t, lines in LINES.items() for line in lines])
def test_lines_have_their_class(trouble: Trouble, line: str) -> None:
    assert trouble == classify(line)


@pytest.mark.parametrize(
    "line",
    [
        '10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /config/error HTTP/1.1" 200 5 "-" "curl"',
        "listening on :8080",
        "Server is ready to receive web requests.",
        'level=info msg="WAL segment loaded" segment=3',
    ],
)  # fmt: skip
def test_quiet_lines_have_none(line: str) -> None:
    assert classify(line) is None


def test_the_last_loud_line_tells_most() -> None:
    lines = [
        "ERROR no space left on device",
        "INFO waiting for db",
        "ERROR too many clients already",
        "panic: exiting",
    ]
    assert [Trouble.POOL, Trouble.DISK_FULL] == [t.trouble for t in telling_lines(lines)][:2]


@given(st.text(max_size=300))
def test_any_line_is_classified_without_an_error(line: str) -> None:
    telling_lines(line.splitlines())
    hosts_in(line)
    concepts.clauses(line)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("dial tcp 10.96.7.7:6379: connect: connection refused", Host("10.96.7.7", 6379)),
        ("connect postgres://app:secret@orders-db:5432/x?sslmode=disable: refused", Host("orders-db", 5432)),
        ('connection to server at "postgres" (10.96.44.12), port 5432 failed', Host("postgres", 5432)),
        ('Get "http://api:8080/list": context deadline exceeded', Host("api", 8080)),
        (
            "lookup cache.shop.svc.cluster.local on 10.96.0.10:53: no such host",
            Host("cache.shop.svc.cluster.local"),
        ),
        ("getaddrinfo ENOTFOUND mysql", Host("mysql")),
        ("(tried: main-db:3333)", Host("main-db", 3333)),
        ("wget: bad address 'redis'", Host("redis")),
    ],
)
def test_hosts_are_found_in_messages(text: str, host: Host) -> None:
    assert host in hosts_in(text)


@pytest.mark.parametrize(
    "text", ["main.go:42: failed", "at 15:04:05", "version 1.2.3", "http://localhost:80/x"]
)
def test_what_is_no_host(text: str) -> None:
    assert [] == hosts_in(text)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("db", ("db", "home")), ("db.data", ("db", "data")), ("db.data.svc", ("db", "data")),
        ("db-0.db.data.svc.cluster.local", ("db", "data")), ("www.example.com", None),
    ],
)  # fmt: skip
def test_cluster_names(name: str, place: tuple[str, str] | None) -> None:
    assert place == place_of(Host(name), "home")


@pytest.mark.parametrize(
    ("text", "traits", "denied", "verdict"),
    [
        (
            "Termination reason OOMKilled at the container's own limit",
            {"oom", "oom_own_limit"},
            set(),
            ClauseTruth.HOLDS,
        ),
        ("Helm or GitOps managed", {"helm"}, {"gitops"}, ClauseTruth.HOLDS),
        ("containers are OOMKilled", set(), {"oom"}, ClauseTruth.FAILS),
        ("Not Helm managed", {"helm"}, set(), ClauseTruth.FAILS),
        ("Not Helm managed", set(), {"helm"}, ClauseTruth.HOLDS),
        ("The selector matches no pods", {"selector_mismatch"}, set(), ClauseTruth.HOLDS),
        ("Suspended on purpose", {"suspended"}, set(), ClauseTruth.UNKNOWN),
        ("Class without expansion", {"no_expansion"}, set(), ClauseTruth.HOLDS),
    ],
)
def test_clauses_are_judged(text: str, traits: set[str], denied: set[str], verdict: ClauseTruth) -> None:
    assert verdict == concepts.judge(concepts.clauses(text)[0], traits, denied)


def test_a_veto_needs_all_that_a_clause_speaks_of() -> None:
    clause = concepts.clauses("The taint reflects a real node problem")[0]
    assert concepts.judge(clause, {"taint"}, set(), strictly=True) is ClauseTruth.UNKNOWN
    assert concepts.judge(clause, {"taint", "node_failure"}, set(), strictly=True) is ClauseTruth.HOLDS


@pytest.mark.parametrize(
    ("action", "remedy"),
    [
        ("IncreaseMemoryLimits", RemedyKind.MORE_MEMORY), ("RollbackDeployment", RemedyKind.ROLLBACK),
        ("ProactiveRollback", RemedyKind.ROLLBACK), ("GracefulRestart", RemedyKind.RESTART), ("RestartPod", RemedyKind.RESTART_POD),
        ("PatchConfiguration", RemedyKind.FIX_CONFIG), ("ScaleStatefulSet", RemedyKind.SCALE_UP), ("CordonNode", RemedyKind.CORDON),
        ("CordonDrainNode", RemedyKind.DRAIN), ("DrainNode", RemedyKind.DRAIN), ("CleanupNode", RemedyKind.CLEAN_NODE),
        ("ProvisionNode", RemedyKind.ADD_NODE), ("RemoveTaint", RemedyKind.UNTAINT), ("FixStatefulSetPVC", RemedyKind.RECREATE_CLAIM),
        ("ExpandPersistentVolumeClaim", RemedyKind.EXPAND_CLAIM), ("CleanupPVC", RemedyKind.CLEAN_CLAIM), ("RelaxPDB", RemedyKind.RELAX_PDB),
        ("PatchHPA", RemedyKind.RAISE_HPA), ("FixNetworkPolicy", RemedyKind.FIX_NETWORK_POLICY), ("FixCertificate", RemedyKind.FIX_CERTIFICATE),
        ("RefreshImagePullSecret", RemedyKind.FIX_PULL_SECRET), ("FixImageReference", RemedyKind.FIX_IMAGE),
        ("ExtendJobDeadline", RemedyKind.EXTEND_DEADLINE), ("DefragEtcd", RemedyKind.DEFRAGMENT), ("RestoreOperatorCSV", RemedyKind.RESTORE_OPERATOR),
        ("GitRevertCommit", RemedyKind.REVERT_COMMIT), ("fix_authorization_policy", RemedyKind.FIX_NETWORK_POLICY),
        ("increase-cpu-limits-v2", RemedyKind.MORE_CPU), ("ResumeCronJob", RemedyKind.RESUME),
    ],
)  # fmt: skip
def test_actions_are_recognised_by_their_names(action: str, remedy: RemedyKind) -> None:
    assert remedy == remedy_of(action, (remedy,))


def test_every_remedy_has_a_name() -> None:
    assert set(RemedyKind) == set(NAMES)


@pytest.mark.parametrize(
    ("action", "remedy"),
    [("RefreshImagePullSecret", RemedyKind.ROTATE_CREDENTIALS), ("ScaleNodePool", RemedyKind.SCALE_UP)],
)
def test_similar_names_are_not_mixed_up(action: str, remedy: RemedyKind) -> None:
    assert remedy_of(action, (remedy,)) is None


def test_names_become_words() -> None:
    assert words_of("FixStatefulSetPVC") == "fix statefulset pvc"
    assert words_of("expand-pvc-v1") == "expand pvc"


CATALOG = [
    "HPAMaxedOut",
    "PVCExhaustion",
    "PodDisruptionBudgetAtLimit",
    "ConnectionPoolExhausted",
    "EtcdHighFragmentation",
    "CronJobSuspended",
]


@pytest.mark.parametrize(
    ("alert", "name"),
    [
        ("KubeHpaMaxedOut", "HPAMaxedOut"), ("KubePersistentVolumeFillingUp", "PVCExhaustion"),
        ("KubePodDisruptionBudgetAtLimit", "PodDisruptionBudgetAtLimit"),
        ("DatabaseConnectionPoolExhausted", "ConnectionPoolExhausted"),
        ("etcdDatabaseHighFragmentationRatio", "EtcdHighFragmentation"), ("SomethingElse", ""),
        ("KubeCronJobSuspended", "CronJobSuspended"), ("KubeCronJobTooLong", ""),
    ],
)  # fmt: skip
def test_alert_names_are_brought_to_the_catalogs(alert: str, name: str) -> None:
    assert name == closest(alert, CATALOG, 0.6)


def finding(**fields: object) -> Finding:
    values: dict[str, object] = {
        "family": "oom",
        "summary": "s",
        "target": ObjectRef("Deployment", "a", "n"),
        "certainty": 0.9,
    }
    return Finding(**(values | fields))  # type: ignore[arg-type]


def test_the_alerts_own_reason_is_kept_when_it_fits() -> None:
    assert (
        choose_signal(finding(family="mount", symptoms=("FailedMount",)), "FailedMount", []) == "FailedMount"
    )
    assert choose_signal(finding(symptoms=("OOMKilled",)), "CrashLoopBackOff", []) == "OOMKilled"
    assert (
        choose_signal(
            finding(symptoms=("CrashLoopBackOff", "PVCExhaustion")), "KubePersistentVolumeFillingUp", CATALOG
        )
        == "PVCExhaustion"
    )
    assert choose_signal(None, "KubeSomethingOdd", []) == ""


WORKFLOW = {
    "parameters": [
        {"name": "TARGET_RESOURCE_NAME", "type": "string", "required": True},
        {"name": "TARGET_RESOURCE_KIND", "type": "string", "required": True, "enum": ["Deployment"]},
        {"name": "SCALE_REPLICAS", "type": "integer", "minimum": 0, "maximum": 50},
        {"name": "NEW_SIZE", "type": "string", "pattern": "^[1-9][0-9]*(Gi|Ti)$"},
    ]
}


def test_parameters_are_filled_by_their_meaning() -> None:
    values = parameters.fill(
        WORKFLOW, finding(hints={"replicas": 0, "new_size": "1.5Gi"}), ObjectRef("Deployment", "a", "n")
    )
    assert values == {"TARGET_RESOURCE_NAME": "a", "TARGET_RESOURCE_KIND": "Deployment", "SCALE_REPLICAS": 0}


def test_a_required_parameter_without_a_value_rules_a_workflow_out() -> None:
    more = {"parameters": [*WORKFLOW["parameters"], {"name": "WINDOW", "type": "string", "required": True}]}
    assert parameters.fill(more, finding(), ObjectRef("Deployment", "a", "n")) is None


def test_a_workflow_acts_on_what_it_covers() -> None:
    secret = finding(target=ObjectRef("Secret", "s", "n"), workload=ObjectRef("Deployment", "a", "n"))
    assert ObjectRef("Deployment", "a", "n") == parameters.acts_on(WORKFLOW, secret, [])
    assert parameters.acts_on(WORKFLOW, finding(target=ObjectRef("Node", "w1")), []) is None


def test_objections_are_read_from_a_correction() -> None:
    text = (
        "The answer was not accepted:\n"
        "- root_cause_analysis.signal_type: X is not a signal type; use one of Evicted, OOMKilled\n"
        "- selected_workflow.parameters.NEW_SIZE: must match\n"
        "- root_cause_analysis.affectedResource: Pod n/a was not found in the cluster: name an object that exists\n"
    )
    found = objections.read([text])
    assert ("Evicted", "OOMKilled") == found.signal_types
    assert frozenset({"NEW_SIZE"}) == found.parameters
    assert (True, True, False, 1) == (found.target, found.signal_type, found.workflow, found.rounds)
