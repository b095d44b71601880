from __future__ import annotations

import os
import stat

import pytest

from worker.app.settings.environment import (
    MAX_SECRET_BYTES,
    PREFIX,
    ConfigurationError,
    Settings,
    documentation,
    load,
    read_secrets,
    secrets,
)

SECRET = "FAKE-hunter2"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """An environment without settings."""
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return path


def refusal(environment, **values):
    for name, value in values.items():
        environment.setenv(name, str(value))
    with pytest.raises(ConfigurationError) as caught:
        load()
    return str(caught.value)


@pytest.mark.parametrize("secret", list(secrets()), ids=lambda secret: secret.variable)
def test_every_secret_is_read_from_a_file(file, secret):
    found = read_secrets({secret.file_variable: str(file), "RCA_HTTP__PORT": "1"})
    assert ({secret.group: {secret.field: SECRET}}, []) == found


def test_no_text_of_the_settings_shows_a_secret_of_a_file(environment, file):
    environment.setenv("RCA_LLM__API_KEY_FILE", str(file))
    settings = load()
    assert SECRET == settings.llm.api_key.get_secret_value()
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"


def test_a_secret_file_leaves_the_rest_of_its_group_as_it_was_set(environment, file):
    environment.setenv("RCA_NATS__USER", "worker")
    environment.setenv("RCA_NATS__PREFIX", "east")
    environment.setenv("RCA_NATS__PASSWORD_FILE", str(file))
    environment.setenv("RCA_LLM__MAX_CALLS", "7")
    settings = load()
    assert ("worker", "east", 7) == (settings.nats.user, settings.nats.prefix, settings.llm.max_calls)
    assert SECRET == settings.nats.password.get_secret_value()


@pytest.mark.parametrize(
    ("text", "value"), [("a\n", "a"), ("a\r\n", "a"), (" a b ", " a b "), ("a\nb\n", "a\nb")]
)
def test_only_line_breaks_at_the_end_are_taken_off(environment, file, text, value):
    file.write_bytes(text.encode())
    environment.setenv("RCA_LLM__API_KEY_FILE", str(file))
    assert value == load().llm.api_key.get_secret_value()


def test_an_empty_variable_is_ignored(environment, file):
    environment.setenv("RCA_LLM__API_KEY_FILE", "")
    assert Settings() == load()
    environment.setenv("RCA_LLM__API_KEY_FILE", str(file))
    environment.setenv("RCA_LLM__API_KEY", "")
    assert SECRET == load().llm.api_key.get_secret_value()


def test_a_secret_in_two_places_is_refused(environment, file):
    said = refusal(environment, RCA_LLM__API_KEY=SECRET, RCA_LLM__API_KEY_FILE=file)
    assert "RCA_LLM__API_KEY_FILE: RCA_LLM__API_KEY is set as well; keep one of them" == said


def test_a_file_that_is_missing_is_the_only_problem(environment, tmp_path):
    said = refusal(environment, RCA_NATS__USER="worker", RCA_NATS__PASSWORD_FILE=tmp_path / "none")
    assert f"RCA_NATS__PASSWORD_FILE: cannot read {tmp_path / 'none'}: No such file or directory" == said


def test_a_directory_is_no_file(environment, tmp_path):
    said = refusal(environment, RCA_LLM__API_KEY_FILE=tmp_path)
    assert f"RCA_LLM__API_KEY_FILE: cannot read {tmp_path}: Is a directory" == said


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else_is_said_to_be_unreadable(environment, file):
    file.chmod(stat.S_IWUSR)
    assert "Permission denied" in refusal(environment, RCA_LLM__API_KEY_FILE=file)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xff\xfe" + SECRET.encode(), "is not UTF-8 text"),
        (SECRET.encode() * MAX_SECRET_BYTES, "is larger than"),
    ],
)
def test_content_that_cannot_be_a_secret_is_refused_and_not_shown(environment, file, content, complaint):
    file.write_bytes(content)
    said = refusal(environment, RCA_LLM__API_KEY_FILE=file)
    assert said.startswith("RCA_LLM__API_KEY_FILE: ")
    assert complaint in said
    assert "hunter2" not in said


def test_every_problem_is_told_at_once(environment, tmp_path):
    said = refusal(environment, RCA_LLM__API_KEY_FILE=tmp_path, RCA_LLM__MAX_CALLS="three", RCA_TYPO="1")
    assert {"RCA_LLM__API_KEY_FILE", "RCA_LLM__MAX_CALLS", "RCA_TYPO"} == {
        line.split(":")[0] for line in said.splitlines()
    }


def test_only_secrets_have_a_file_variable(environment, file):
    assert "RCA_NATS__PREFIX_FILE: unknown setting" in refusal(environment, RCA_NATS__PREFIX_FILE=file)


def test_the_file_variables_are_documented():
    rows = {name: meaning for name, _, meaning in documentation()}
    assert len(rows) == len(documentation())
    assert rows["RCA_NATS__USER"] == "User name; requires RCA_NATS__PASSWORD."
    assert rows["RCA_NATS__PASSWORD_FILE"] == "File that holds RCA_NATS__PASSWORD, instead of the variable."
