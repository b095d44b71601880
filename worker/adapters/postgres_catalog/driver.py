"""asyncpg, and its exceptions translated to those of the port."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from worker.domain.untrusted.evidence import one_line
from worker.domain.values.errors import CatalogUnavailable

try:
    import asyncpg
except ImportError as error:  # an optional dependency
    raise CatalogUnavailable(
        "asyncpg is not installed, which a catalog in PostgreSQL needs: pip install 'rca-worker[postgres]'"
    ) from error

__all__ = ["LOST", "PUSH", "ServerLost", "asyncpg", "translated"]

PUSH = "rca catalog push DIR"
MAX_MESSAGE_CHARS = 300
REFUSED = re.compile(r"Connect call failed \('([0-9a-fA-F.:]+)', (\d+)")
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InterfaceError,
    asyncpg.TargetServerAttributeNotMatched,
    ConnectionError,
)
"""The connection was lost, or could not be made: another one may work."""
DRIVER = (asyncpg.InterfaceError, asyncpg.InternalClientError)


AWAY = (*LOST, asyncpg.TooManyConnectionsError, asyncpg.LockNotAvailableError, OSError)
"""The same call may work later."""


class ServerLost(CatalogUnavailable):
    """The server does not answer, ended the connection, or keeps the tables locked; it may come back."""


@contextmanager
def translated(seconds: float) -> Iterator[None]:
    """Raises CatalogUnavailable, without the address, for each failure of driver, network and server.

    Exceptions of the driver may repeat parts of an address that it cannot parse, so they are not chained.
    """
    try:
        yield
    except TimeoutError:
        raise ServerLost(f"PostgreSQL gave no answer within {seconds:g} s") from None
    except (asyncpg.PostgresError, *DRIVER, OSError, ValueError) as error:
        kind = ServerLost if isinstance(error, AWAY) else CatalogUnavailable
        raise kind(f"PostgreSQL: {_explained(error)}") from None


def _explained(error: Exception) -> str:
    if isinstance(error, asyncpg.PostgresError):
        return _server_message(error)
    if isinstance(error, OSError):
        return f"cannot be reached{_refused_by(error)} ({_network(error)})"
    if "root certificate" in str(error):
        return "sslmode verifies the server, but no root certificate was found: add sslrootcert=FILE to the address"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "no server of the address is what its target_session_attrs asks for"
    if isinstance(error, asyncpg.ClientConfigurationError) or not isinstance(error, DRIVER):
        return "RCA_CATALOG__DATABASE_URL is not a usable postgresql:// address"
    return f"the connection failed ({type(error).__name__})"


def _refused_by(error: OSError) -> str:
    """The numeric address that refused the connection, from asyncio.

    It cannot be a part of the password: a host name has been resolved by then.
    """
    found = REFUSED.search(str(error)) if isinstance(error, ConnectionRefusedError) else None
    return f" at {found[1]}:{found[2]}, from RCA_CATALOG__DATABASE_URL" if found else ""


def _network(error: OSError) -> str:
    """The error without the address: in a misspelt address a part of the password may be taken for the host."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason}"
    if "SSL" in str(error):
        return "it does not offer TLS, which sslmode asks for"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else type(error).__name__


def _server_message(error: asyncpg.PostgresError) -> str:
    message = one_line(str(error), MAX_MESSAGE_CHARS)
    match error:
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedColumnError():
            return f"the database holds no catalog of this version yet: run `{PUSH}`"
        case asyncpg.InsufficientPrivilegeError():
            return f"{message}; a worker needs SELECT on the tables workflow_*, and `{PUSH}` must run as their owner"
        case asyncpg.LockNotAvailableError():
            return "the tables are locked by something else, such as another push"
        case asyncpg.QueryCanceledError():
            return "a statement took too long"
        case _:
            return message
