"""The canonical hash of the spec of a resource (DD-EM-002, version 2): the key of the remediation history.

Executors, assessors and this worker hash independently and compare the texts, so the bytes must be those that
Go's `encoding/json` writes: keys in order, no spaces, raw UTF-8, `<`, `>`, `&`, U+2028 and U+2029 escaped,
integers as int64, other numbers as the shortest float64. Everything but `apiVersion`, `kind`, `metadata` and
`status` is hashed; lists are sorted by the text of their elements, since the API server may reorder them.

The hashes of ConfigMaps that a resource uses are mixed in. Secrets are left out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, strings
from worker.domain.values.objects import Manifest

NOT_HASHED = frozenset({"apiVersion", "kind", "metadata", "status"})
TEMPLATE_PATHS: Mapping[str, tuple[str, ...]] = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"), ("spec", "template", "spec")
    ),
}
"""The path of the pod spec, by kind. Other kinds have none, whatever their controllers make."""
CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
GO_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
UNPAIRED = re.compile(r"[\ud800-\udfff]")
INT64 = 2**63
SMALLEST_PLAIN, LARGEST_PLAIN = 1e-6, 1e21
"""Floats between these are written without an exponent (ECMAScript's rule, which Go follows)."""


def fingerprint(manifest: Manifest | None) -> str:
    """`sha256:` and 64 hexadecimal digits; of `{}` for None. Empty when the object is nested too deeply."""
    functional = {key: value for key, value in (manifest or {}).items() if key not in NOT_HASHED}
    try:
        return _sha256(canonical_json(functional))
    except RecursionError:
        return ""


def canonical_json(value: Any) -> str:
    """A JSON value as Go writes it, with every list in order. What JSON cannot hold is null."""
    if isinstance(value, dict):
        members = sorted((_whole(str(key)), item) for key, item in value.items())
        return "{" + ",".join(f"{_quoted(key)}:{canonical_json(item)}" for key, item in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(sorted(canonical_json(item) for item in value)) + "]"
    if isinstance(value, str):
        return _quoted(_whole(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _number(value)


def config_map_names(manifest: Manifest) -> tuple[str, ...]:
    """The ConfigMaps that the pods of a workload use, in order.

    They may be volumes, projected volumes or sources of the environment.
    """
    path = TEMPLATE_PATHS.get(str(manifest.get("kind")))
    pod = mapping(dig(manifest, *path)) if path else {}
    found: list[Any] = []
    for volume in mappings(pod.get("volumes")):
        found.append(dig(volume, "configMap", "name"))
        found += [dig(s, "configMap", "name") for s in mappings(dig(volume, "projected", "sources"))]
    for container in (c for key in CONTAINER_LISTS for c in mappings(pod.get(key))):
        found += [dig(e, "configMapRef", "name") for e in mappings(container.get("envFrom"))]
        found += [dig(e, "valueFrom", "configMapKeyRef", "name") for e in mappings(container.get("env"))]
    return tuple(sorted({name for name in found if isinstance(name, str) and name}))


def config_map_hash(config_map: Manifest) -> str:
    """Hash of the content of a ConfigMap: lines `d:<key>=<value>`, then `b:<key>=<base64>`."""
    data, binary = strings(config_map.get("data")), strings(config_map.get("binaryData"))
    lines = [f"d:{key}={data[key]}" for key in sorted(data)]
    lines += [f"b:{key}={_standard_base64(binary[key])}" for key in sorted(binary)]
    return _sha256("\n".join(lines))


def absent_config_map_hash(name: str) -> str:
    """The placeholder for a ConfigMap that cannot be read, for whatever reason.

    It differs from the hash of an empty one.
    """
    return config_map_hash({"data": {"__sentinel__": f"__absent:{name}__"}})


def composite(own: str, config_maps: Mapping[str, str]) -> str:
    """The fingerprint of a resource with those of its ConfigMaps, by name. Unchanged without any."""
    if not config_maps or not own:
        return own
    return _sha256("\n".join([own, *(f"{name}:{config_maps[name]}" for name in sorted(config_maps))]))


def canonical_hash(manifest: Manifest, config_maps: Mapping[str, Manifest | None]) -> str:
    """The hash that outcomes carry: of a resource and of the ConfigMaps its pods use.

    `config_maps` are those that could be read, by name. Empty when the object is nested too deeply.
    """
    hashes = {}
    for name in config_map_names(manifest):
        found = config_maps.get(name)
        hashes[name] = absent_config_map_hash(name) if found is None else config_map_hash(found)
    return composite(fingerprint(manifest), hashes)


def parameters_digest(parameters: Mapping[str, Any]) -> str:
    """A digest of the parameters, whatever their order. The values themselves may be confidential."""
    return _sha256(canonical_json(dict(parameters)))


def _sha256(content: str) -> str:
    return f"sha256:{hashlib.sha256(_whole(content).encode()).hexdigest()}"


def _whole(content: str) -> str:
    """Half a surrogate pair becomes U+FFFD, as in Go's decoder; UTF-8 has no form for it."""
    return UNPAIRED.sub("\ufffd", content)


def _quoted(content: str) -> str:
    return json.dumps(content, ensure_ascii=False).translate(GO_ESCAPES)


def _number(value: Any) -> str:
    if isinstance(value, int) and -INT64 <= value < INT64:
        return str(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return "null"
    if not math.isfinite(number):
        return "null"
    if number == 0:
        return "-0" if math.copysign(1, number) < 0 else "0"
    return _float(number)


def _float(number: float) -> str:
    """The shortest digits that read back as the same number.

    Python and Go agree on the digits but not on when to write an exponent.
    """
    if SMALLEST_PLAIN <= abs(number) < LARGEST_PLAIN:
        plain = format(Decimal(repr(number)), "f")
        return plain.removesuffix(".0")
    return repr(number).replace("e-0", "e-")


def _standard_base64(value: str) -> str:
    """As Go writes the bytes that the value stands for."""
    try:
        return base64.b64encode(base64.b64decode(value)).decode()
    except (binascii.Error, ValueError):
        return value
