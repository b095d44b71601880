"""`rca permissions`: who may do what on NATS."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from worker.app.cli.console import Json, print_json, reported
from worker.domain.values.errors import ReportedError

if TYPE_CHECKING:
    from schemas.permissions import Access
    from schemas.subjects import Subjects

HEADER = """\
# Who may do what on NATS. Made by `rca permissions`: do not edit, make it again.
#
# Include it in the server's configuration and refer to its parts in `accounts`, as nats.conf does:
#   ${stem}_EXPORTS in the account {stem}, which has JetStream; ${stem}_WORKER, ${stem}_PROVISIONER and
#     ${stem}_OPERATOR for its users;
#   ${stem}_<ROLE>_IMPORTS in the account {stem}_<ROLE> of every other role; ${stem}_<ROLE> for its users.
"""


def permissions(
    role: Annotated[
        str,
        typer.Argument(help="One role; by default all of them, with exports and imports.", metavar="ROLE"),
    ] = "",
    *,
    prefix: Annotated[
        str, typer.Option(help="First part of the subjects; RCA_NATS__PREFIX by default.")
    ] = "",
    json_output: Json = False,
) -> None:
    """Print the NATS permissions of each role as server configuration (deploy/nats/roles.conf, for any prefix).

    Roles: worker, provisioner, operator, gateway, aianalysis, executor, audit-reader.
    """
    from schemas.permissions import Role, access

    if role not in {"", *Role}:
        raise typer.BadParameter(f"{role!r} is not one of {', '.join(Role)}.", param_hint="ROLE")
    with reported():
        subjects = _subjects(prefix)
    wanted = [access(each, subjects) for each in ([Role(role)] if role else Role)]
    if json_output:
        print_json([asdict(each) for each in wanted])
    elif role:
        typer.echo("\n".join(_permissions(wanted[0])))
    else:
        typer.echo(configuration(subjects), nl=False)


def _subjects(prefix: str) -> Subjects:
    """Raises ReportedError for a prefix that cannot be part of a subject."""
    from schemas.subjects import Subjects
    from worker.app.settings import load

    try:
        return Subjects(prefix or load().nats.prefix)
    except ValueError as e:
        raise ReportedError(str(e)) from e


def configuration(subjects: Subjects) -> str:
    """All roles, in the language of the server's configuration."""
    from schemas.permissions import INSIDE, Role, access

    everyone = [access(role, subjects) for role in Role]
    lines = [HEADER.format(stem=subjects.stem)]
    lines += _list(f"{subjects.stem}_EXPORTS", _exports(everyone))
    for each in everyone:
        lines += ["", f"# --- {each.role}", "", *_permissions(each)]
        if each.role not in INSIDE:
            lines += _list(f"{_name(each)}_IMPORTS", _imports(each, subjects.stem))
    return "\n".join(lines) + "\n"


def _name(each: Access) -> str:
    from schemas.permissions import INSIDE

    return f"{each.account}_{each.role.upper()}" if each.role in INSIDE else each.account


def _permissions(each: Access) -> list[str]:
    return [
        f"{_name(each)}: {{",
        *_list("  publish", map(json.dumps, each.publish)),
        *_list("  subscribe", map(json.dumps, each.subscribe)),
        "}",
    ]


def _exports(everyone: Iterable[Access]) -> Iterable[str]:
    accounts: dict[tuple[str, str], list[str]] = {}
    for each in everyone:
        for kind, imports in (("service", each.services), ("stream", each.feeds)):
            for one in imports:
                accounts.setdefault((kind, one.subject), []).append(each.account)
    for (kind, subject), names in accounts.items():
        # A pull request may be answered many times.
        many = ", response: stream" if ".MSG.NEXT." in subject else ""
        yield f"{{{kind}: {json.dumps(subject)}, accounts: [{', '.join(names)}]{many}}}"


def _imports(each: Access, account: str) -> Iterable[str]:
    for kind, imports in (("service", each.services), ("stream", each.feeds)):
        for one in imports:
            to = f", to: {json.dumps(one.local)}" if one.local != one.subject else ""
            yield f"{{{kind}: {{account: {account}, subject: {json.dumps(one.subject)}}}{to}}}"


def _list(name: str, items: Iterable[str]) -> Sequence[str]:
    indent = " " * (len(name) - len(name.lstrip()) + 2)
    return [f"{name}: [", *(f"{indent}{item}" for item in items), f"{indent[2:]}]"]
