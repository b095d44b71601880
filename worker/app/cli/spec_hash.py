"""`rca spec-hash`: the hash by which an executor names the state of a resource in an outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import Json, one_line, print_json, reported
from worker.domain.values.errors import ReportedError

NAME_CHARS = 253


def spec_hash(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What `kubectl get -o yaml` prints; - reads standard input.", allow_dash=True
        ),
    ],
    *,
    json_output: Json = False,
) -> None:
    """Print the spec hash of a resource.

    Use it as the pre_remediation_spec_hash or post_remediation_spec_hash of an outcome.

    FILE holds the resource, followed by the ConfigMaps that its pods use. A ConfigMap that is not in FILE
    counts as absent.
    """
    from worker.domain.cluster.spec_hash import canonical_hash, config_map_names
    from worker.sandbox.cluster_files import objects_of

    with reported():
        objects = list(objects_of(Path("/dev/stdin") if str(file) == "-" else file))
        if not objects:
            raise ReportedError(f"{file}: there is no object in it")
    resource, *others = objects
    config_maps = {each["metadata"]["name"]: each for each in others if each["kind"] == "ConfigMap"}
    absent = [name for name in config_map_names(resource) if name not in config_maps]
    found = canonical_hash(resource, config_maps)
    if json_output:
        named = {"kind": resource["kind"], "name": resource["metadata"]["name"]}
        print_json({**named, "spec_hash": found, "absent_config_maps": absent})
        return
    for name in absent:
        said = f"warning: the ConfigMap {one_line(name, NAME_CHARS)} is not in {file}, so it counts as absent"
        typer.echo(said, err=True)
    typer.echo(found)
