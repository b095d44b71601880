"""The address of the API server and the credentials: service account or kubeconfig, exec plugins included."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, incluster_config, kube_config

from worker.adapters.kubernetes_cluster.failures import unavailable
from worker.domain.values.errors import ClusterError, ClusterReason

EXPIRY_SKEW = timedelta(seconds=30)
MAX_PLUGIN_OUTPUT_BYTES = 1024 * 1024
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
InClusterConfigLoader: Any = incluster_config.InClusterConfigLoader  # the library is not typed
KubeConfigLoader: Any = kube_config.KubeConfigLoader
KubeConfigMerger: Any = kube_config.KubeConfigMerger
UNREADABLE = (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, LookupError)
TOKEN = "BearerToken"  # noqa: S105 - the library's name for the header, not a token


@dataclass(kw_only=True, slots=True, eq=False, repr=False)
class ClusterCredentials:
    """The client configuration of one cluster, with credentials that are kept fresh.

    `kubeconfig` is a path, or several joined as in `$KUBECONFIG`; None means the pod's service account.
    """

    kubeconfig: str | None
    context: str
    service_account: Path
    plugin_seconds: float
    now: Callable[[], datetime]
    configuration: Any = field(default_factory=Configuration)
    generation: int = 0
    _plugin: ExecPlugin | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def load(self) -> None:
        """Reads the configuration (again). Raises ClusterError UNAVAILABLE."""
        try:
            if self.kubeconfig is None:
                self._load_service_account()
            else:
                await self._load_kubeconfig(self.kubeconfig)
        except UNREADABLE as error:
            raise unavailable("the cluster's credentials cannot be read", error) from error
        self.generation += 1

    async def renew(self, refused: int) -> None:
        """Reads the credentials again after a 401, once for all calls that used generation `refused`."""
        async with self._lock:
            if self.generation == refused:
                await self.load()

    async def authorize(self) -> None:
        """Makes sure that the token of an exec plugin is fresh. Raises ClusterError UNAVAILABLE."""
        if self._plugin:
            self.configuration.api_key[TOKEN] = f"Bearer {await self._plugin.token()}"

    def _load_service_account(self) -> None:
        """Load the service account.

        The library reads the token again each minute: the kubelet replaces it before it expires.
        """
        token, authority = self.service_account / "token", self.service_account / "ca.crt"
        if not token.exists():  # the library would name variables that only a pod has
            raise ConfigException(f"no kubeconfig is set, and this is not a pod: {token} does not exist")
        InClusterConfigLoader(token_filename=str(token), cert_filename=str(authority)).load_and_set(
            self.configuration
        )

    async def _load_kubeconfig(self, paths: str) -> None:
        if not _any_file(paths):
            raise ConfigException(f"{paths}: no such file")  # the library would log it as well
        merged = KubeConfigMerger(paths).config
        if merged is None:
            raise ConfigException(f"{paths}: no kubeconfig")
        plugin = _take_plugin(merged, self.context)
        await KubeConfigLoader(config_dict=merged, active_context=self.context or None).load_and_set(
            self.configuration
        )
        self._plugin = ExecPlugin(plugin, seconds=self.plugin_seconds, now=self.now) if plugin else None
        await self.authorize()


class ExecPlugin:
    """A client-go credential plugin (client.authentication.k8s.io) that issues bearer tokens."""

    def __init__(self, spec: Mapping[str, Any], *, seconds: float, now: Callable[[], datetime]) -> None:
        self._command = [str(spec["command"]), *(str(word) for word in spec.get("args") or ())]
        self._api_version = str(spec.get("apiVersion") or "")
        self._variables = {str(entry["name"]): str(entry["value"]) for entry in spec.get("env") or ()}
        self._seconds = seconds
        self._now = now
        self._lock = asyncio.Lock()
        self._token = ""
        self._expires: datetime | None = None

    async def token(self) -> str:
        """A token that is not about to expire; many callers wait for one run of the plugin.

        Raises ClusterError UNAVAILABLE. The output of the plugin is never part of the message.
        """
        async with self._lock:
            if not self._token or (self._expires and self._now() >= self._expires - EXPIRY_SKEW):
                status = _credential_status(await self._run())
                self._token, self._expires = _token_of(status)
            return self._token

    async def _run(self) -> bytes:
        info = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **self._variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise _unusable(f"credential plugin cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._seconds):
                output, _ = await process.communicate()
        except TimeoutError as error:
            raise _unusable(f"credential plugin did not answer within {self._seconds:g} s") from error
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            raise _unusable(f"credential plugin ended with exit code {process.returncode}")
        return output


def _any_file(paths: str) -> bool:
    named = (os.path.expanduser(path) for path in paths.split(os.pathsep) if path)  # noqa: PTH111 - never raises
    return any(Path(path).exists() for path in named)


def _take_plugin(merged: Any, context: str) -> Mapping[str, Any] | None:
    """Remove the exec section of the context's user, which the library would run without a time limit."""
    active = merged["contexts"].get_with_name(context or merged["current-context"])["context"]
    user = (
        merged["users"].get_with_name(active.safe_get("user"), safe=True)
        if merged.safe_get("users")
        else None
    )
    plugin = user["user"].value.pop("exec", None) if user else None
    return plugin if isinstance(plugin, dict) and plugin.get("command") else None


def _credential_status(output: bytes) -> Mapping[str, Any]:
    try:
        credential = json.loads(output) if len(output) <= MAX_PLUGIN_OUTPUT_BYTES else None
        status = credential["status"] if isinstance(credential, dict) else None
    except (ValueError, KeyError, RecursionError) as error:
        raise _unusable("credential plugin did not print an ExecCredential") from error
    if not isinstance(status, dict) or not isinstance(status.get("token"), str):
        raise _unusable("credential plugin returned no token (client certificates are not supported)")
    return status


def _token_of(status: Mapping[str, Any]) -> tuple[str, datetime | None]:
    text = status.get("expirationTimestamp")
    if not text:
        return status["token"], None
    try:
        expires = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise _unusable("credential plugin returned an expirationTimestamp that is not RFC 3339") from error
    if expires.tzinfo is None:
        raise _unusable("credential plugin returned an expirationTimestamp without a time zone")
    return status["token"], expires


def _unusable(message: str) -> ClusterError:
    return ClusterError(ClusterReason.UNAVAILABLE, message)
