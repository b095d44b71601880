"""`rca snapshot`: save a live cluster as a case for `rca demo`, `rca eval` and tests."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli.console import Json, asynchronous, counted, one_line, print_json, waiting_for
from worker.domain.values.errors import ReportedError

if TYPE_CHECKING:
    from worker.domain.recording.snapshot import NamespaceSnapshot

SHOWN, LINE_CHARS = 10, 200


@asynchronous
async def snapshot(
    *,
    namespace: Annotated[list[str], typer.Option(help="Namespace to read; may be repeated.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="New directory to write; snapshot-NAMESPACE by default."),
    ] = None,
    incident: Annotated[
        Path | None,
        typer.Option(
            help="The request of the incident; by default one about the owner of the pod in the worst state.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    json_output: Json = False,
) -> int:
    """Save namespaces of a live cluster, with a request about them, as a case for `rca demo DIR`.

    Reads objects, the nodes and volumes that they use, events, and the last lines of logs, with the kubeconfig
    of RCA_KUBERNETES__KUBECONFIG, and changes nothing. Secrets are never read, and the files are redacted. They
    describe your cluster, so read them before you pass them on.
    """
    from contextlib import AsyncExitStack

    from worker.app.settings.environment import load
    from worker.app.wiring.outside import open_cluster
    from worker.domain.recording.snapshot import incident_of, take_snapshot

    directory = output or Path(f"snapshot-{namespace[0]}")
    if directory.exists():
        raise ReportedError(f"{directory} exists: name a new directory with -o")
    async with AsyncExitStack() as stack:
        cluster = await open_cluster(load(), stack)
        async with waiting_for(f"the objects and logs of {', '.join(namespace)}"):
            taken = await take_snapshot(cluster, namespace)
    if incident is None:
        request = json.dumps(incident_of(taken, datetime.now(UTC)), indent=2).encode()
    else:
        request = incident.read_bytes()
    _write(taken, request, directory)
    if json_output:
        facts = {"objects": len(taken.objects), "logs": len(taken.logs), "not_read": taken.unread}
        print_json({"directory": str(directory), **facts, "request": json.loads(request)})
        return 0
    typer.echo(f"{directory}: {counted(len(taken.objects), 'object')}, {counted(len(taken.logs), 'log')}")
    for line in taken.unread[:SHOWN]:
        typer.echo(f"not read: {one_line(line, LINE_CHARS)}")
    typer.echo(f"analyse it: rca demo {directory}; for rca eval, add expected.json (docs/replay.md)")
    return 0


def _write(taken: NamespaceSnapshot, request: bytes, directory: Path) -> None:
    import yaml

    kinds = defaultdict[str, list[Any]](list)
    for item in taken.objects:
        kinds[item["kind"]].append(item)
    for folder in ("cluster", "logs"):
        (directory / folder).mkdir(parents=True)
    (directory / "incident.json").write_bytes(request)
    for kind, items in sorted(kinds.items()):
        (directory / "cluster" / f"{kind.lower()}.yaml").write_text(
            yaml.dump_all(items, Dumper=yaml.CSafeDumper, sort_keys=False)
        )
    for (space, pod, container, previous), log in taken.logs.items():
        name = f"{space}_{pod}_{container}{'.previous' if previous else ''}.log"
        (directory / "logs" / name).write_bytes(log)
