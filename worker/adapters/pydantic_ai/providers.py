"""The providers of models: their names, settings and clients.

Each client is imported only when its provider is configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import metadata
from types import MappingProxyType
from typing import Any, Final

import httpx2
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from worker.adapters.pydantic_ai.failures import one_line
from worker.domain.values.errors import ReportedError

BEDROCK_CONNECTIONS: Final = 100
"""Its client has no unlimited pool."""
CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 600.0
"""The deadline of a request is shorter."""
NEEDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "azure": "set AZURE_OPENAI_ENDPOINT, OPENAI_API_VERSION and RCA_LLM__API_KEY, and no base URL",
        "bedrock": "set AWS_REGION, and the credentials in AWS's own variables",
        "google-cloud": "set GOOGLE_CLOUD_PROJECT, GOOGLE_CLOUD_LOCATION, and Google's own credentials or RCA_LLM__API_KEY",
    }
)
"""The settings of a provider that needs more than an API key."""


class ModelUnusable(ReportedError):  # noqa: N818 - a state of the configuration
    """The model cannot be called as it is configured. The message says what to set."""


def provider_model(
    name: str, *, base_url: str | None, api_key: str | None, http: httpx2.AsyncClient
) -> Model:
    """The model of a name, which makes its calls through `http` if its client can. Raises ModelUnusable."""

    def provider(kind: str) -> Provider[Any]:
        if kind == "bedrock":
            return _bedrock(base_url, api_key)
        if kind == "azure" and base_url:
            raise UserError("Azure has an endpoint and an API version in place of a base URL")
        options: dict[str, Any] = {"http_client": _legacy_client() if kind == "groq" else http}
        if base_url:
            options["base_url"] = base_url
        if api_key or (base_url and kind not in NEEDS):
            options["api_key"] = api_key or "none"  # local servers ask for no key, their client does
        try:
            return infer_provider_class(kind)(**options)
        except client_errors(kind) as e:
            raise UserError(str(e)) from e

    kind = name.partition(":")[0]
    try:
        return infer_model(name, provider_factory=provider)
    except ImportError as e:
        extra = kind.partition("-")[0]  # google-cloud needs the extra google
        extras = metadata("rca-worker").get_all("Provides-Extra") or ()
        how = f"install the extra {extra}" if extra in extras else one_line(e)
        raise ModelUnusable(f"{name}: the client of this provider is not installed: {how}") from e
    except (UserError, ValueError) as e:
        known = ":" in name and not str(e).startswith("Unknown")
        hint = (
            NEEDS.get(kind, "set RCA_LLM__API_KEY")
            if known
            else "name it as provider:model, such as openai-chat:gpt-5"
        )
        raise ModelUnusable(f"{name} cannot be used: {hint}" + ("" if known else f" ({one_line(e)})")) from e


def client_errors(kind: str) -> tuple[type[Exception], ...]:
    """The errors of a provider's client besides those of the library: connections and credentials of its own."""
    if kind == "bedrock":
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        return (BotoCoreError,)
    if kind.startswith("google"):
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

        return (GoogleAuthError,)
    return ()


async def close_model(model: Model) -> None:
    """Close the connections that the model does not share with the others."""
    if model.system == "groq":
        await model.client.close()  # type: ignore[attr-defined]  # of this provider only


def _legacy_client() -> Any:
    """A client of httpx, for a provider whose own client does not take one of httpx2."""
    import httpx  # noqa: PLC0415

    return httpx.AsyncClient(
        timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=None),
        follow_redirects=False,
    )


def _bedrock(base_url: str | None, api_key: str | None) -> Provider[Any]:
    """Bedrock's client makes one try: retries and fallbacks are up to the chain."""
    from boto3 import Session  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    if api_key:
        raise UserError(
            "Bedrock takes no RCA_LLM__API_KEY: set AWS_BEARER_TOKEN_BEDROCK, or other AWS credentials"
        )
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=BEDROCK_CONNECTIONS,
        retries={"total_max_attempts": 1},
    )
    try:
        client = Session().client("bedrock-runtime", endpoint_url=base_url, config=config)
    except client_errors("bedrock") as e:
        raise UserError(str(e)) from e
    return infer_provider_class("bedrock")(bedrock_client=client)  # type: ignore[call-arg]  # the class is looked up
