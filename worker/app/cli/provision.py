"""`rca provision`."""

from __future__ import annotations

import typer

from worker.adapters.nats.provision import Action
from worker.app.cli.connection import connection
from worker.app.cli.console import print_json
from worker.app.provisioning import provision_all
from worker.app.settings import load

DIFFERENT = {Action.DRIFT, Action.WOULD_CREATE, Action.WOULD_UPDATE}


async def provision(*, check: bool, as_json: bool) -> int:
    """Exit code 1 when something differs that was not put right."""
    settings = load()
    async with connection(settings.nats) as nc:
        findings = await provision_all(nc, settings, apply=not check)
    if as_json:
        print_json([{"name": f.name, "action": f.action, "detail": f.detail} for f in findings])
    else:
        for finding in findings:
            typer.echo(f"{finding.action:13} {finding.name} {finding.detail}".rstrip())
    return int(any(finding.action in DIFFERENT for finding in findings))
