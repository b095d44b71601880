"""Host names in messages and settings, and the Services, pods and workloads behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.refs import WORKLOADS, as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.shapes import command_text, env_values, labels_of, pod_spec, selects

LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
NAME = rf"{LABEL}(?:\.{LABEL})*\.?"
IP = r"\d{1,3}(?:\.\d{1,3}){3}"
PATTERNS = (
    re.compile(rf"[a-z][a-z0-9+.-]*://(?:[^\s@/\"']*@)?(?P<host>{NAME}|{IP})(?::(?P<port>\d{{1,5}}))?(?=[/\s\"'?,;)\]]|$)", re.IGNORECASE),
    re.compile(rf"(?:lookup|resolve|resolving|hostname|host name|translate host(?: name)?|UnknownHostException:?|ENOTFOUND|EAI_AGAIN|getaddrinfo|bad address|unknown host|host)[ :=\"'`]+(?:for |ENOTFOUND |EAI_AGAIN )?(?P<host>{NAME})(?::(?P<port>\d{{1,5}}))?", re.IGNORECASE),
    re.compile(rf"(?<![\w./@-])(?P<host>{NAME}|{IP}):(?P<port>\d{{2,5}})(?!\w|:\d)", re.IGNORECASE),
    re.compile(rf"\b(?:server|service|broker|database|db|cache|upstream|endpoint|backend|api|peer|node|address|at|to|from|for|on|with|reach|contact|ping|dial|connect)[ :=]+[\"'`(]*(?=(?P<host>{NAME})[\"'`)]*(?: \([\d.:]+\))?(?:,? port (?P<port>\d{{1,5}}))?)", re.IGNORECASE),
    re.compile(rf"[\"'`](?P<host>{NAME})[\"'`]", re.IGNORECASE),
    re.compile(rf"(?:^|\s)-h[ =](?P<host>{NAME})", re.IGNORECASE),
)  # fmt: skip
DOTTED_FILE = re.compile(
    r"\.(?:go|py|js|ts|java|rb|rs|c|cc|cpp|h|php|yaml|yml|json|conf|log|sh|jar|so|toml|ini|properties)\.?$"
)
CLUSTER_SUFFIXES = (".svc.cluster.local", ".svc")
STOP = frozenset(
    ["the", "a", "an", "to", "be", "is", "was", "in", "on", "at", "of", "and", "or", "not", "for", "from", "with", "by", "it", "its", "this", "that", "localhost", "server", "database", "service", "host", "port", "connection", "connect", "error", "failed", "timeout", "refused", "true", "false", "null", "none", "all", "any", "start", "starting", "ready", "address", "db", "backend", "api"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Host:
    """A host as a program names it. `port` is 0 when none was given."""

    name: str
    port: int = 0

    @property
    def dotted(self) -> bool:
        """Whether the name has more than one label."""
        return "." in self.name

    @property
    def is_ip(self) -> bool:
        """Whether it is an IPv4 address."""
        return bool(re.fullmatch(IP, self.name))


def hosts_in(text: str) -> list[Host]:
    """Candidates for host names in a message, the surest first. Many are none: only what resolves counts."""
    found: dict[str, Host] = {}
    for pattern in PATTERNS:
        for match in pattern.finditer(text):
            name = match["host"].rstrip(".").lower()
            port = int(match.groupdict().get("port") or 0)
            sure = bool(port) or "://" in match[0]
            if _plausible(name, sure=sure) and (name not in found or (port and not found[name].port)):
                found[name] = Host(name, port)
    return list(found.values())


def _plausible(name: str, *, sure: bool = False) -> bool:
    if (
        name == "localhost"
        or (name in STOP and not sure)
        or len(name) < 2
        or DOTTED_FILE.search(name)
        or name.startswith("127.")
    ):
        return False
    return (not name.isdigit() and not re.fullmatch(r"v?\d+(\.\d+)*", name)) or bool(re.fullmatch(IP, name))


def configured_hosts(pod: Manifest) -> list[Host]:
    """Hosts that stand in the plain settings and commands of a pod. A port in a setting of its own is joined in."""
    spec = pod_spec(pod)
    settings = env_values(spec)
    found: dict[str, Host] = {}
    for name, value in settings.items():
        candidates = hosts_in(value) or _plain(value)
        stem = re.sub(r"_?(HOST(NAME)?|ADDR(ESS)?|SERVER|URL|ENDPOINT)$", "", name)
        port = next((settings[k] for k in (f"{stem}_PORT", f"{stem}PORT") if k in settings), "")
        for host in candidates:
            found.setdefault(host.name, Host(host.name, host.port or (int(port) if port.isdigit() else 0)))
    for host in hosts_in(command_text(spec)):
        found.setdefault(host.name, host)
    return list(found.values())


def _plain(value: str) -> list[Host]:
    name = value.strip().lower()
    return (
        [Host(name)]
        if re.fullmatch(NAME, name) and _plausible(name) and any(c.isalpha() for c in name)
        else []
    )


def place_of(host: Host, namespace: str) -> tuple[str, str] | None:
    """Service name and namespace that the cluster's DNS would look up; None for a name outside of the cluster."""
    name = host.name
    for suffix in CLUSTER_SUFFIXES:
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    parts = name.split(".")
    if len(parts) == 1:
        return parts[0], namespace
    if len(parts) == 2:
        return parts[0], parts[1]
    if len(parts) == 3 and name != host.name:
        return parts[1], parts[2]  # a pod of a headless Service
    return None


def service_for(facts: Facts, host: Host, namespace: str, *, ask: bool = True) -> ObjectRef | None:
    """The Service a host name means, None when there is none or it is not known yet."""
    if host.is_ip:
        return _service_by_ip(facts, host.name)
    place = place_of(host, namespace)
    if place is None:
        return None
    name, where = place
    rows = facts.rows("Service", where, ask=ask)
    if any(r.get("NAME") == name for r in rows):
        facts.get("Service", name, where, ask=ask)
        return make_ref("Service", name, where)
    found = facts.get("Service", name, where, ask=False)
    return make_ref("Service", name, where) if found else None


def _service_by_ip(facts: Facts, address: str) -> ObjectRef | None:
    for row in facts.rows("Service", facts.incident.resource.namespace):
        if row.get("CLUSTER-IP") == address:
            facts.get("Service", row["NAME"], row.get("NAMESPACE", ""))
            return make_ref("Service", row["NAME"], row.get("NAMESPACE", ""))
    for service in facts.objects("Service"):
        if dig(service, "spec", "clusterIP") == address:
            return make_ref(
                "Service",
                str(dig(service, "metadata", "name")),
                str(dig(service, "metadata", "namespace") or ""),
            )
    for pod in facts.objects("Pod"):
        if dig(pod, "status", "podIP") == address:
            labels = labels_of(pod)
            for service in facts.objects("Service"):
                if selects({"matchLabels": as_dict(dig(service, "spec", "selector"))}, labels) and dig(
                    service, "spec", "selector"
                ):
                    return make_ref(
                        "Service",
                        str(dig(service, "metadata", "name")),
                        str(dig(service, "metadata", "namespace") or ""),
                    )
    return None


def selector_of(facts: Facts, service: ObjectRef) -> dict[str, str]:
    """The selector of a Service, from the object or from its row in a listing."""
    manifest = facts.of(service, ask=False)
    if manifest is not None:
        return {str(k): str(v) for k, v in as_dict(dig(manifest, "spec", "selector")).items()}
    row = next(
        (r for r in facts.rows("Service", service.namespace, ask=False) if r.get("NAME") == service.name), {}
    )
    pairs = (part.partition("=") for part in re.split(r"[,\s]+", row.get("SELECTOR", "")))
    return {k: v for k, separator, v in pairs if separator}


def ports_of(facts: Facts, service: ObjectRef) -> list[dict[str, object]]:
    """Ports of a Service; empty when not known."""
    manifest = facts.of(service, ask=False) or {}
    return [p for p in as_list(dig(manifest, "spec", "ports")) if isinstance(p, dict)]


def workloads_behind(facts: Facts, service: ObjectRef) -> list[ObjectRef]:
    """Workloads whose pods the Service selects, from what is known; asks for listings when nothing is."""
    selector = selector_of(facts, service)
    if not selector:
        return []
    found: dict[str, ObjectRef] = {}
    for kind in WORKLOADS:
        for workload in facts.objects(kind, service.namespace):
            template = as_dict(dig(workload, "spec", "template", "metadata", "labels"))
            labels = {str(k): str(v) for k, v in template.items()}
            if kind != "ReplicaSet" and selects({"matchLabels": selector}, labels):
                ref = make_ref(
                    kind,
                    str(dig(workload, "metadata", "name")),
                    service.namespace,
                    str(workload.get("apiVersion") or ""),
                )
                found[str(ref)] = ref
    for pod in facts.objects("Pod", service.namespace):
        if selects({"matchLabels": selector}, labels_of(pod)):
            root = facts.root_of(pod, ask=False)
            if root is not None:
                owner = _deployment_of(root, labels_of(pod))
                found[str(owner)] = owner
    if not found:
        listed = _by_listing(facts, service, selector)
        found = {str(r): r for r in listed if not _other_labels(facts, r, selector)}
    return list(found.values())


def _other_labels(facts: Facts, workload: ObjectRef, selector: dict[str, str]) -> bool:
    """Whether the pods of a workload are known to have labels that the selector does not take."""
    manifest = facts.of(workload, ask=False)
    template = as_dict(dig(manifest or {}, "spec", "template", "metadata", "labels"))
    labels = {str(k): str(v) for k, v in template.items()}
    return bool(labels) and not selects({"matchLabels": selector}, labels)


def _deployment_of(root: ObjectRef, labels: dict[str, str]) -> ObjectRef:
    suffix = labels.get("pod-template-hash", "")
    if root.kind == "ReplicaSet" and suffix and root.name.endswith(f"-{suffix}"):
        return make_ref("Deployment", root.name.removesuffix(f"-{suffix}"), root.namespace)
    return root


def _by_listing(facts: Facts, service: ObjectRef, selector: dict[str, str]) -> list[ObjectRef]:
    """Owners of pods that a listing with the Service's selector shows, and workloads named like it."""
    label_selector = ",".join(f"{k}={v}" for k, v in sorted(selector.items()))
    found: dict[str, ObjectRef] = {}
    for row in facts.rows("Pod", service.namespace):
        owner = owner_in_row(row, service.namespace)
        if owner and _name_fits(owner.name, {service.name, *selector.values()}):
            found[str(owner)] = owner
    if found:
        return list(found.values())
    facts.want("list_resources", kind="Pod", namespace=service.namespace, label_selector=label_selector)
    for kind in ("Deployment", "StatefulSet"):
        for row in facts.rows(kind, service.namespace):
            if _name_fits(row.get("NAME", ""), {service.name, *selector.values()}):
                ref = make_ref(kind, row["NAME"], service.namespace)
                found[str(ref)] = ref
    return list(found.values())


def _name_fits(name: str, wanted: set[str]) -> bool:
    return name in wanted or any(name.startswith(f"{w}-") for w in wanted)


def owner_in_row(row: dict[str, str], namespace: str) -> ObjectRef | None:
    """The workload in the OWNER column of a pod listing, a ReplicaSet's Deployment by the name."""
    kind, _, name = row.get("OWNER", "").rpartition("/")
    if not kind or not name:
        return None
    if kind == "ReplicaSet" and "-" in name:
        return make_ref("Deployment", name.rpartition("-")[0], namespace)
    return make_ref(kind, name, namespace)
