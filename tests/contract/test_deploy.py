"""What is deployed fits the program: commands, settings, permissions, probes. Without docker and kubectl."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from schemas.permissions import Role, access
from schemas.subjects import Subjects
from tests.contract.command_lines import parse
from worker.app.cli.permissions import configuration
from worker.app.provisioning import wanted_streams
from worker.app.settings.environment import Settings, documentation
from worker.app.settings.groups import NatsSettings
from worker.sandbox import nats_server
from worker.sandbox.analyst.respond import NAME as ANALYST
from worker.sandbox.cluster_server import SHIPPED

TOP = Path(__file__).parent.parent.parent
DEPLOY = TOP / "deploy"
VERSION = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
SETTINGS = {name for name, _, _ in documentation()}
READ = {"get", "list"}


NO_MANIFESTS = {"policies", "helm", "compose"}
"""Data of policies, a chart (test_chart.py), what containers of docker-compose.yml read."""


def manifest_files() -> list[Path]:
    files = (p for p in sorted(DEPLOY.rglob("*.yaml")) if p.name != "kustomization.yaml")
    return [p for p in files if p.relative_to(DEPLOY).parts[0] not in NO_MANIFESTS]


def manifests() -> list[dict]:
    return [document for path in manifest_files() for document in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str, name: str = "") -> list[dict]:
    return [m for m in manifests() if m["kind"] == kind and name in {"", m["metadata"]["name"]}]


PODS = {
    m["metadata"]["name"]: m["spec"]["template"] for k in ("Deployment", "Job", "StatefulSet") for m in of_kind(k)
}  # fmt: skip
COMPOSE = yaml.safe_load((TOP / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]


# --- Kubernetes ----------------------------------------------------------------------------------------------------


def test_every_manifest_is_listed_once():
    listed = []
    for kustomization in DEPLOY.rglob("kustomization.yaml"):
        content = yaml.safe_load(kustomization.read_text())
        files = [f for g in content.get("configMapGenerator", []) for f in g["files"]]
        listed += [(kustomization.parent / name).resolve() for name in content["resources"] + files]
    assert all(path.exists() for path in listed)
    written = [path for path in listed if path.is_file()]
    assert len(written) == len(set(written))
    assert set(manifest_files()) <= set(written)


def test_the_worker_reads_and_nothing_else():
    for role in of_kind("ClusterRole"):
        for rule in role["rules"]:
            assert set(rule["verbs"]) <= READ, role["metadata"]["name"]
            assert not {"secrets", "*", "serviceaccounts/token", "pods/exec"} & set(rule["resources"])
            assert "*" not in rule["apiGroups"]
            assert not set(rule) & {"nonResourceURLs"}


def test_the_roles_reach_the_worker():
    (total,) = of_kind("ClusterRole", "rca-worker")
    (selector,) = total["aggregationRule"]["clusterRoleSelectors"]
    others = [
        role
        for role in of_kind("ClusterRole")
        if role is not total and role["metadata"]["name"] != "rca-worker"
    ]
    assert len(others) == 2
    assert all(selector["matchLabels"].items() <= role["metadata"]["labels"].items() for role in others)
    (binding,) = of_kind("ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "rca-worker"
    (account,) = of_kind("ServiceAccount")
    assert [s["name"] for s in binding["subjects"]] == [account["metadata"]["name"]]
    assert PODS["rca-worker"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert not of_kind("Role") + of_kind("RoleBinding")


@pytest.mark.parametrize("name", PODS)
def test_pods_are_restricted(name):
    """The `restricted` Pod Security Standard, which the namespace enforces, and a read-only root."""
    spec = PODS[name]["spec"]
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert not any("hostPath" in volume for volume in spec.get("volumes", []))
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])


def test_only_the_worker_has_a_token():
    without = [name for name, pod in PODS.items() if pod["spec"].get("automountServiceAccountToken") is False]
    assert sorted(without) == sorted(set(PODS) - {"rca-worker"})


def test_the_worker_is_probed_where_it_answers():
    (container,) = PODS["rca-worker"]["spec"]["containers"]
    port = {p["name"]: p["containerPort"] for p in container["ports"]}
    (config,) = of_kind("ConfigMap")
    assert port["http"] == int(config["data"]["RCA_HTTP__PORT"])
    paths = {
        probe: container[probe]["httpGet"]["path"]
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
    }
    assert paths == {"livenessProbe": "/livez", "readinessProbe": "/readyz", "startupProbe": "/livez"}
    assert {container[probe]["httpGet"]["port"] for probe in paths} == {"http"}


def test_there_is_time_to_finish():
    drain = Settings().worker.drain_seconds
    assert PODS["rca-worker"]["spec"]["terminationGracePeriodSeconds"] >= drain + 15
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) >= drain + 15


def test_the_namespaces_and_network_policies_fit():
    (namespace,) = of_kind("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    policies = {p["metadata"]["name"]: p["spec"] for p in of_kind("NetworkPolicy")}
    (clients,) = policies["nats"]["ingress"]
    wanted = clients["from"][0]["podSelector"]["matchLabels"].items()
    speakers = [name for name, pod in PODS.items() if wanted <= pod["metadata"]["labels"].items()]
    assert sorted(speakers) == ["rca-provision", "rca-worker"]
    assert (
        policies["nats"]["podSelector"]["matchLabels"].items() <= PODS["nats"]["metadata"]["labels"].items()
    )
    (selected,) = policies["rca-worker"]["podSelector"]["matchExpressions"]
    assert selected["values"] == ["rca-worker", "rca-provision"]
    assert [p["port"] for p in clients["ports"]] == [4222]
    assert all(rule["from"] for policy in policies.values() for rule in policy["ingress"])
    assert all(set(p["policyTypes"]) == {"Ingress", "Egress"} for p in policies.values())


def test_a_drained_node_leaves_servers_and_workers_behind():
    budgets = {b["metadata"]["name"]: b["spec"] for b in of_kind("PodDisruptionBudget")}
    assert set(budgets) == {"rca-worker", "nats"}
    for name, budget in budgets.items():
        assert budget["selector"]["matchLabels"].items() <= PODS[name]["metadata"]["labels"].items()
    assert budgets["rca-worker"]["minAvailable"] < of_kind("Deployment")[0]["spec"]["replicas"]
    assert budgets["nats"]["maxUnavailable"] == 1


def test_selectors_select_the_pods():
    for kind in ("Deployment", "StatefulSet"):
        for workload in of_kind(kind):
            labels = workload["spec"]["template"]["metadata"]["labels"].items()
            assert workload["spec"]["selector"]["matchLabels"].items() <= labels
    (service,) = of_kind("Service")
    assert service["spec"]["selector"].items() <= PODS["nats"]["metadata"]["labels"].items()
    (servers,) = [m["data"]["RCA_NATS__SERVERS"] for m in of_kind("ConfigMap")]
    assert servers == f"nats://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"


def test_secrets_are_referred_to_and_explained_but_not_shipped():
    assert not of_kind("Secret")
    explained = (DEPLOY / "kustomization.yaml").read_text()
    for pod in PODS.values():
        for variable in pod["spec"]["containers"][0].get("env", []):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                assert re.search(
                    rf"secret generic {reference['name']} --from-literal={reference['key']}=", explained
                )


# --- Three servers of NATS -----------------------------------------------------------------------------------------

HA = DEPLOY / "ha"


def of_three(kind: str, name: str) -> dict:
    """The object as deploy/ha patches it (RFC 6902: `add` and `replace`)."""
    (found,) = of_kind(kind, name)
    for patch in yaml.safe_load((HA / "kustomization.yaml").read_text())["patches"]:
        if patch["target"] == {"kind": kind, "name": name}:
            for step in yaml.safe_load(patch["patch"]):
                apply(step, found)
    return found


def apply(step: dict, document: dict) -> None:
    *parents, last = step["path"].removeprefix("/").split("/")
    place = document
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if last == "-":
        place.append(step["value"])
    else:
        assert (last in place) == (step["op"] == "replace"), step["path"]
        place[last] = step["value"]


def test_three_servers_know_each_other_and_the_worker_knows_them():
    servers, service = of_three("StatefulSet", "nats"), of_three("Service", "nats")
    (container,) = servers["spec"]["template"]["spec"]["containers"]
    names = [f"nats-{n}.{servers['spec']['serviceName']}" for n in range(servers["spec"]["replicas"])]
    routes = ",".join(f"nats://route:$(RCA_NATS_ROUTE_PASSWORD)@{name}:6222" for name in names)
    assert ["-c", "/etc/nats/cluster.conf", "--routes", routes] == container["args"]
    assert {4222, 6222, 8222} == {p["containerPort"] for p in container["ports"]}
    assert [4222, 6222] == [p["port"] for p in service["spec"]["ports"]]
    # Found before they are ready, and none waits for another one to be: no server of a cluster is ready alone.
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert servers["spec"]["podManagementPolicy"] == "Parallel"
    config = of_three("ConfigMap", "rca-worker")["data"]
    assert ",".join(f"nats://{name}:4222" for name in names) == config["RCA_NATS__SERVERS"]
    assert str(len(names)) == config["RCA_NATS__REPLICAS"]


def test_three_servers_reach_each_other_and_nothing_else():
    spec = of_three("NetworkPolicy", "nats")["spec"]
    clients, peers = spec["ingress"]
    outwards, names = spec["egress"]
    assert clients == of_kind("NetworkPolicy", "nats")[0]["spec"]["ingress"][0]
    assert peers["from"] == outwards["to"] == [{"podSelector": spec["podSelector"]}]
    assert peers["ports"] == outwards["ports"] == [{"port": 6222, "protocol": "TCP"}]
    assert {53} == {p["port"] for p in names["ports"]}


def test_a_server_accepts_its_configuration_as_one_of_three(tmp_path):
    for path in (*(DEPLOY / "nats").glob("*.conf"), HA / "cluster.conf"):
        (tmp_path / path.name).write_text(path.read_text().replace("/data", str(tmp_path)))
    env = of_three("StatefulSet", "nats")["spec"]["template"]["spec"]["containers"][0]["env"]
    secret = {
        v["name"]: v["valueFrom"]["secretKeyRef"]["name"] for v in env if "RCA_NATS_SERVER" not in v["name"]
    }
    assert "rca-nats-route" == secret["RCA_NATS_ROUTE_PASSWORD"]
    assert "secret generic rca-nats-route --from-literal=password=" in (HA / "kustomization.yaml").read_text()
    variables = dict.fromkeys(secret, "s3cret-enough") | {"RCA_NATS_SERVER_NAME": "nats-0"}
    command = [nats_server.find_nats_server(), "-t", "-c", str(tmp_path / "cluster.conf")]
    tried = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert 0 == tried.returncode, tried.stderr
    del variables["RCA_NATS_ROUTE_PASSWORD"]
    tried = subprocess.run(command, env=os.environ | variables, capture_output=True, check=False)
    assert 0 != tried.returncode, "a route needs a password"


# --- Commands, settings, images ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [n for n, pod in PODS.items() if "rca-worker" in pod["spec"]["containers"][0]["image"]]
)
def test_the_commands_of_the_pods_exist(name):
    parse(PODS[name]["spec"]["containers"][0]["args"])


@pytest.mark.parametrize("name", [n for n, s in SERVICES.items() if "rca-worker" in s["image"]])
def test_the_commands_of_compose_exist(name):
    parse(SERVICES[name]["command"])


def test_an_unknown_command_would_be_noticed():
    with pytest.raises(KeyError, match="nothing"):
        parse(["nothing"])
    with pytest.raises(Exception, match="--nothing"):
        parse(["worker", "--nothing"])


def environments() -> dict[str, set[str]]:
    ours = [name for name, service in SERVICES.items() if "rca-worker" in service["image"]]
    found = {
        f"compose {n}": {v for v in SERVICES[n].get("environment", {}) if v.startswith("RCA_")} for n in ours
    }
    found["config"] = {key for m in of_kind("ConfigMap") for key in m["data"]}
    for name in ("rca-worker", "rca-provision"):
        found[name] = {v["name"] for v in PODS[name]["spec"]["containers"][0]["env"]}
    return found


@pytest.mark.parametrize("where", environments())
def test_the_settings_exist(where):
    assert environments()[where] - SETTINGS == set()


def test_the_configuration_is_valid(monkeypatch):
    (config,) = of_kind("ConfigMap")
    (container,) = PODS["rca-worker"]["spec"]["containers"]
    given = {v["name"]: v.get("value", "x") for v in container["env"]}
    for name, value in (config["data"] | given).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.nats.servers == ("nats://nats:4222",)
    assert settings.worker.lane_slots("p0") == 8


def uncommented(name: str) -> list[dict]:
    """The documents of a manifest with what it offers in comments."""
    text = (DEPLOY / "kubernetes" / name).read_text()
    offered = r"^( +)# ((?:- |  +)?(?:RCA_\w+|name|value|ports|mountPath|readOnly|configMap|secret\w*): ?.*)$"
    return list(yaml.safe_load_all(re.sub(offered, r"\1\2", text, flags=re.MULTILINE)))


@pytest.mark.parametrize("name", ["catalog", "policy"])
def test_the_offered_files_are_mounted_where_the_setting_says(name):
    (config,) = uncommented("config.yaml")
    pod = uncommented("deployment.yaml")[0]["spec"]["template"]["spec"]
    mounted = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert config["data"][f"RCA_{name.upper()}__PATH"] == mounted[name]
    (volume,) = [v for v in pod["volumes"] if v["name"] == name]
    assert {"name": name, "configMap": {"name": f"rca-{name}"}} == volume
    assert f"create configmap rca-{name} --from-file=" in (DEPLOY / "kubernetes/config.yaml").read_text()


def test_the_offered_signing_key_is_mounted_where_the_setting_says():
    pod = uncommented("deployment.yaml")[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "signing"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "signing"]
    made = f"secret generic {volume['secret']['secretName']} --from-file=signing.pem"
    assert made in (DEPLOY / "kustomization.yaml").read_text()
    given = {v["name"]: v.get("value") for v in container["env"]}
    assert given["RCA_AUDIT__SIGNING_KEY_FILE"] == f"{mount['mountPath']}/signing.pem"
    assert mount["readOnly"] is True


def test_every_address_of_the_settings_has_a_rule_to_allow_it():
    text = (DEPLOY / "kubernetes" / "networkpolicy.yaml").read_text()
    addresses = {name for name in SETTINGS if name.endswith("_URL")} | {"RCA_MCP__SERVERS"}
    assert addresses == set(re.findall(r"RCA_\w+", text))
    (policy,) = uncommented("networkpolicy.yaml")
    ports = {p["port"] for rule in policy["spec"]["egress"] for p in rule["ports"]}
    assert {5432, 9090, 8181} <= ports


def images() -> set[str]:
    named = {s["image"] for s in SERVICES.values()}
    return named | {c["image"] for pod in PODS.values() for c in pod["spec"]["containers"]}


def test_images_are_pinned_and_ours_is_this_version():
    others = images() - {f"rca-worker:{VERSION}"}
    assert "nats:2.15.1-alpine" in others
    assert all(re.search(r":v?\d+\.\d+\.\d+(?:-\w+)?$", image) for image in others)


def test_files_that_compose_mounts_are_there():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (TOP / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source


def test_compose_asks_the_offline_analyst_unless_told_otherwise():
    given = SERVICES["worker"]["environment"]
    assert given["RCA_LLM__MODEL"] == f"${{RCA_LLM__MODEL:-openai-chat:{ANALYST}}}"
    port = SERVICES["analyst"]["command"][-1]
    assert given["RCA_LLM__BASE_URL"] == f"${{RCA_LLM__BASE_URL-http://127.0.0.1:{port}/v1}}"
    assert f"{port}), 2)" in SERVICES["analyst"]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_of_compose_is_hardened(name):
    service = SERVICES[name]
    assert service["user"] == {"postgres": "999:999"}.get(name, "65532:65532")
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit", "cpus"} <= set(service)
    assert any(place.startswith("/tmp:size=") for place in service["tmpfs"])
    assert all(mount.endswith(":ro") for mount in service.get("volumes", []) if mount.startswith("."))
    runs_on = service.get("restart") == "unless-stopped"
    assert ("healthcheck" in service) == (runs_on and name != "collector"), "its image has no shell"
    assert not {"privileged", "cap_add", "pid", "ipc", "devices"} & set(service)


def test_the_volume_of_nats_gets_its_owner_first():
    assert SERVICES["nats"]["depends_on"]["volume"]["condition"] == "service_completed_successfully"
    assert SERVICES["volume"]["volumes"] == ["nats:/data"]
    assert "install -d -o rca -g rca /sandbox /data" in DOCKERFILE


def test_compose_publishes_on_loopback_only():
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_compose_waits_for_what_is_needed():
    for name, service in SERVICES.items():
        for needed, condition in service.get("depends_on", {}).items():
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed], f"{name} waits for {needed}"
    assert set(SERVICES["worker"]["depends_on"]) == {"provision", "cluster", "analyst", "push"}
    # Without the profile there is no such service.
    assert SERVICES["worker"]["depends_on"]["push"]["required"] is False
    shared = {n for n, s in SERVICES.items() if s.get("network_mode") == "service:cluster"}
    assert shared == {"analyst", "worker"}


def profile(name: str) -> set[str]:
    return {n for n, s in SERVICES.items() if s.get("profiles") == [name]}


def test_profiles_add_what_they_are_named_for():
    assert {"postgres", "push"} == profile("postgres")
    assert {"prometheus", "grafana", "collector"} == profile("observability")
    assert {"submit"} == profile("submit")


def test_the_profiles_fit_what_they_serve():
    def mounted(service: str) -> dict[str, Path]:
        parts = [mount.split(":") for mount in SERVICES[service]["volumes"]]
        return {target: TOP / source for source, target, _ in parts}

    def read(service: str, target: str):
        return yaml.safe_load(mounted(service)[target].read_text())

    [config] = [
        a.partition("=")[2] for a in SERVICES["prometheus"]["command"] if a.startswith("--config.file=")
    ]
    [scraped] = read("prometheus", config)["scrape_configs"]
    port = SERVICES["worker"]["environment"]["RCA_HTTP__PORT"]
    assert [f"cluster:{port}"] == scraped["static_configs"][0]["targets"]
    assert "service:cluster" == SERVICES["worker"]["network_mode"]
    [source] = read("grafana", "/etc/grafana/provisioning/datasources/rca.yaml")["datasources"]
    assert ("prometheus", "http://prometheus:9090") == (source["type"], source["url"])
    [provider] = read("grafana", "/etc/grafana/provisioning/dashboards/rca.yaml")["providers"]
    assert (
        DEPLOY / "monitoring" / "dashboard.json"
        == mounted("grafana")[f"{provider['options']['path']}/rca.json"]
    )
    [config] = [a.partition("=")[2] for a in SERVICES["collector"]["command"]]
    receiver = read("collector", config)["receivers"]["otlp"]["protocols"]
    assert "http" in receiver, "workers speak no gRPC"
    assert (
        f"127.0.0.1:{receiver['http']['endpoint'].rpartition(':')[2]}:4318" in SERVICES["collector"]["ports"]
    )
    asked = SERVICES["push"]["environment"]["RCA_CATALOG__DATABASE_URL"]
    database = SERVICES["postgres"]["environment"]
    assert f"postgresql://rca:{database['POSTGRES_PASSWORD']}@postgres/{database['POSTGRES_DB']}" == asked


def test_what_is_not_asked_for_in_compose_is_off(monkeypatch):
    given = SERVICES["worker"]["environment"]
    assert "${RCA_CATALOG__DATABASE_URL:-}" == given["RCA_CATALOG__DATABASE_URL"]
    assert "${OTEL_EXPORTER_OTLP_ENDPOINT:-}" == given["OTEL_EXPORTER_OTLP_ENDPOINT"]
    monkeypatch.setenv("RCA_CATALOG__DATABASE_URL", "")
    assert not Settings().catalog.database_url.get_secret_value()


# --- Image, NATS, policy -------------------------------------------------------------------------------------------

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def test_the_image_is_built_from_locked_packages_and_runs_as_nobody():
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON}"}
    assert "ARG PYTHON=python:3.12-slim\n" in DOCKERFILE
    fetching = [line for line in DOCKERFILE.splitlines() if re.search(r"pip\b.* (?:install|wheel) ", line)]
    assert fetching
    assert all("--require-hashes" in line or "--no-index" in line for line in fetching)
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert {
        PODS[name]["spec"]["securityContext"]["runAsUser"] for name in ("rca-worker", "rca-provision")
    } == {int(user)}
    assert 'ENTRYPOINT ["rca"]' in DOCKERFILE


def test_what_the_image_copies_is_there_and_not_ignored():
    kept = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        name
        for names in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for name in names.split()
    }
    assert copied == kept
    assert all((TOP / name).exists() for name in copied)


def test_the_server_accepts_its_configuration(tmp_path):
    text = (DEPLOY / "nats" / "nats.conf").read_text()
    assert f"max_payload: {nats_server.MAX_PAYLOAD}" in text
    assert "sync_interval: always" in text
    path = tmp_path / "nats.conf"
    path.write_text(text.replace("/data", str(tmp_path)))
    (tmp_path / "roles.conf").write_text((DEPLOY / "nats" / "roles.conf").read_text())
    passwords = {f"RCA_NATS_{role.upper().replace('-', '_')}_PASSWORD": "s3cret-enough" for role in Role}
    variables = passwords | {"RCA_NATS_SERVER_NAME": "nats-0"}
    command = [nats_server.find_nats_server(), "-t", "-c", str(path)]
    assert (
        subprocess.run(command, env=os.environ | variables, capture_output=True, check=False).returncode == 0
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0, "a password is required"
    given = {v["name"] for v in PODS["nats"]["spec"]["containers"][0]["env"]}
    assert given == set(SERVICES["nats"]["environment"]) == set(variables)


def test_the_byte_limits_fit_into_the_store_and_the_store_into_the_volume():
    [store] = re.findall(r"max_file_store: (\d+)GB", (DEPLOY / "nats" / "nats.conf").read_text())
    [claim] = of_kind("StatefulSet", "nats")[0]["spec"]["volumeClaimTemplates"]
    volume = claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")
    deployed = int(of_kind("ConfigMap", "rca-worker")[0]["data"]["RCA_NATS__STORE_MEBIBYTES"])
    assert NatsSettings().store_mebibytes == deployed == int(store) << 10
    limits = [item.config["max_bytes"] for item in wanted_streams(Settings()) if not item.stream]
    assert sum(limits) < int(store) << 30
    assert int(store) < int(volume)


def test_the_committed_roles_are_the_generated_ones():
    """`rca permissions > deploy/nats/roles.conf` makes them anew."""
    assert configuration(Subjects()) == (DEPLOY / "nats" / "roles.conf").read_text()


@pytest.mark.parametrize("role", Role)
def test_every_role_has_a_user_with_its_permissions(role):
    text = (DEPLOY / "nats" / "nats.conf").read_text()
    name = role.upper().replace("-", "_")
    assert f"{{user: {role}, password: $RCA_NATS_{name}_PASSWORD, permissions: $RCA_{name}}}" in text


@pytest.mark.parametrize(("pod", "role"), [("rca-worker", Role.WORKER), ("rca-provision", Role.PROVISIONER)])
def test_pods_speak_as_their_role(pod, role):
    (container,) = PODS[pod]["spec"]["containers"]
    given = {v["name"]: v.get("value") or v["valueFrom"]["secretKeyRef"]["name"] for v in container["env"]}
    assert (str(role), f"rca-nats-{role}", access(role, Subjects()).inbox_prefix) == (
        given["RCA_NATS__USER"],
        given["RCA_NATS__PASSWORD"],
        given["RCA_NATS__INBOX_PREFIX"],
    )


@pytest.mark.parametrize(
    ("service", "role"),
    [("worker", Role.WORKER), ("provision", Role.PROVISIONER), ("submit", Role.OPERATOR)],
)
def test_compose_services_speak_as_their_role(service, role):
    given = SERVICES[service]["environment"]
    passwords = SERVICES["nats"]["environment"]
    assert (
        str(role),
        passwords[f"RCA_NATS_{role.upper()}_PASSWORD"],
        access(role, Subjects()).inbox_prefix,
    ) == (
        given["RCA_NATS__USER"],
        given["RCA_NATS__PASSWORD"],
        given["RCA_NATS__INBOX_PREFIX"],
    )


def test_the_policy_to_start_from_is_the_shipped_one():
    assert (DEPLOY / "policies" / "approval.rego").read_text() == (
        TOP / "worker/policies/approval.rego"
    ).read_text()


def test_the_files_that_the_security_page_names_are_there():
    named = re.findall(r"`((?:worker|deploy|tests)/[^`]*)`", (TOP / "SECURITY.md").read_text())
    assert len(named) > 10
    assert [name for name in named if not (TOP / name).exists()] == []


def test_there_are_no_addresses_but_local_ones():
    for path in [*DEPLOY.rglob("*"), TOP / "docker-compose.yml", TOP / "SECURITY.md"]:
        if path.is_file():
            hosts = re.findall(r"\w+://([^\s/:\"'}]+)", path.read_text())
            assert set(hosts) <= {
                "nats",
                "127.0.0.1",
                "route",
                "nats-0.nats",
                "nats-1.nats",
                "nats-2.nats",
                "postgres",
                "prometheus",
                "collector",
                "rca",
                "HOST",
            }, path


@pytest.mark.parametrize("name", SHIPPED)
def test_the_snapshot_cluster_grants_what_is_shipped(name):
    shipped, copy = DEPLOY / "kubernetes" / name, files("worker") / "sandbox" / "rbac" / name
    assert shipped.read_bytes() == copy.read_bytes(), f"copy deploy/kubernetes/{name} to worker/sandbox/rbac"
