"""What a line of a log says went wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.diagnosis.loglines import Trouble, classify, plain, telling_lines

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
    Trouble.OTHER: ["listen tcp :8080: bind: address already in use", "open /data/db: permission denied"],
    Trouble.MISSING_FILE: ["ModuleNotFoundError: No module named 'numpyy'", "stat /etc/app/x.yaml: no such file or directory"],
    Trouble.CRASH: ["panic: runtime error: index out of range", "Segmentation fault (core dumped)"],
}  # fmt: skip


@pytest.mark.parametrize(("trouble", "line"), [(t, line) for t, lines in LINES.items() for line in lines])
def test_lines_have_their_class(trouble: Trouble, line: str) -> None:
    assert trouble == classify(line)


@pytest.mark.parametrize("part", [".", "pars", "decod", "unmarshal", "fail", "auth", "cert", " "])
def test_a_long_line_is_searched_in_one_go(part: str) -> None:
    """It ends: a pattern that goes back and forth would take minutes."""
    line = (part * 100_000)[:100_000]
    assert classify(plain(line)) is None


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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (json.dumps({"level": "error", "msg": "no space", "error": {"cause": "full"}}), "no space: full"),
        (json.dumps({"record": {"message": "low disk"}}), "low disk"),
        (json.dumps({"level": "error"}), json.dumps({"level": "error"})),
        ("{not json", "{not json"),
        ("panic: x (repeated 7 times)", "panic: x"),
    ],
)
def test_what_a_line_says(line: str, said: str) -> None:
    assert said == plain(line)


def test_a_quiet_line_counts_only_when_it_is_clear() -> None:
    assert telling_lines(["INFO reading config file: unknown key"]) == []
    assert [Trouble.DISK_FULL] == [t.trouble for t in telling_lines(["INFO no space left on device"])]
