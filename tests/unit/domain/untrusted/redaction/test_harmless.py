from __future__ import annotations

import pytest

from worker.domain.untrusted.redaction.harmless import harmless, secret_value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_HOST", "postgres"),
        ("DB", "postgres:5432"),
        ("ENDPOINT", "http://catalog.shop.svc.cluster.local:8080/api"),
        ("ADDRESS", "10.96.44.12"),
        ("WORKERS", "16"),
        ("RATIO", "0.75"),
        ("DEBUG", "true"),
        ("PGDATA", "/var/lib/postgresql/data"),
        ("TIMEOUT", "1h30m"),
        ("GOMEMLIMIT", "512MiB"),
        ("JAVA_TOOL_OPTIONS", "-Xmx512m -XX:MaxRAMPercentage=75.0 -javaagent:/agent.jar"),
        ("NODE_OPTIONS", "--max-old-space-size=4096"),
        ("IMAGE", "registry.example.com/shop/api:2.0.0"),
        ("PASSWORD_FILE", "/run/secrets/db"),
        ("TOKEN", ""),
    ],
)
def test_values_that_cannot_be_credentials_are_shown(name, value):
    assert harmless(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASSWORD", "1234"),
        ("API_KEY", "postgres"),
        ("URL", "http://user:word@host/x"),
        ("URL", "https://host/hook?code=1"),
        ("DSN", "host=db user=app password=word"),
        ("HEADERS", "authorization=Bearer abc"),
        ("SESSION", "f3a9c0b1d2e4"),
        ("ANYTHING", "correct horse battery staple"),
        ("ANYTHING", "Tr0ub4dor&3"),
        ("ANYTHING", "x" * 400),
    ],
)
def test_values_that_may_be_credentials_are_hidden(name, value):
    assert not harmless(name, value)


def test_the_name_of_an_object_under_a_secret_key_is_no_secret():
    assert not secret_value("imagePullSecret", "registry-credentials")
    assert secret_value("client_secret", "Zm9vYmFyZm9vYmFy1")
