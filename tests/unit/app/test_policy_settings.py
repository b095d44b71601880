from __future__ import annotations

from pathlib import Path

import pytest

from worker.app.settings.environment import ConfigurationError, load
from worker.app.settings.groups import PolicySettings
from worker.app.wiring.rules import analysis_rules

SECRET = "FAKE-hunter2"


def test_the_policy_is_the_shipped_one_by_default():
    assert PolicySettings() == PolicySettings(path=None, data=(), url="", timeout_seconds=0.05)


def test_files_with_data(monkeypatch):
    monkeypatch.setenv("RCA_POLICY__PATH", "/etc/policy")
    monkeypatch.setenv("RCA_POLICY__DATA", "/etc/a.yaml, /etc/b.json")
    assert (Path("/etc/a.yaml"), Path("/etc/b.json")) == load().policy.data


def test_a_server(monkeypatch):
    monkeypatch.setenv("RCA_POLICY__URL", "http://opa:8181")
    monkeypatch.setenv("RCA_POLICY__TOKEN", SECRET)
    monkeypatch.setenv("RCA_POLICY__DECISION", "team/approval")
    policy = load().policy
    assert ("http://opa:8181", SECRET) == (policy.url, policy.token.get_secret_value())
    assert SECRET not in repr(policy)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"URL": "http://opa", "PATH": "/etc/policy"}, "RCA_POLICY__URL cannot be combined"),
        ({"URL": "http://opa", "DATA": "/etc/a.json"}, "RCA_POLICY__URL cannot be combined"),
        ({"DATA": "/etc/a.json"}, "RCA_POLICY__DATA needs RCA_POLICY__PATH"),
        ({"URL": "http://user:pw@opa"}, "RCA_POLICY__URL"),
        ({"URL": "opa:8181"}, "RCA_POLICY__URL"),
        ({"DECISION": "../policies"}, "RCA_POLICY__DECISION"),
        ({"DECISION": "/rca"}, "RCA_POLICY__DECISION"),
        ({"DECISION": "rca?metrics"}, "RCA_POLICY__DECISION"),
        ({"TIMEOUT_SECONDS": "0"}, "RCA_POLICY__TIMEOUT_SECONDS"),
        ({"POLL_SECONDS": "0"}, "RCA_POLICY__POLL_SECONDS"),
    ],
)
def test_settings_that_make_no_sense_are_named(monkeypatch, given, text):
    for name, value in given.items():
        monkeypatch.setenv(f"RCA_POLICY__{name}", value)
    with pytest.raises(ConfigurationError, match=text):
        load()


def test_observe_mode_is_a_setting(monkeypatch):
    assert not analysis_rules(load()).observe
    monkeypatch.setenv("RCA_POLICY__MODE", "observe")
    assert analysis_rules(load()).observe


def test_no_other_mode(monkeypatch):
    monkeypatch.setenv("RCA_POLICY__MODE", "trust")
    with pytest.raises(ConfigurationError, match="RCA_POLICY__MODE"):
        load()
