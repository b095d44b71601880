"""Where the second model is asked, and with whose key."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from pydantic import SecretStr

from tests.fakes.fixed_clock import FixedClock
from tests.fakes.llm_server import Said, serve
from worker.app.settings.environment import Settings
from worker.app.settings.groups import LlmSettings, ShadowSettings
from worker.app.wiring.models import open_shadow
from worker.domain.values.conversation import ModelRequest, UserTurn

MAIN, OWN = SecretStr("main-key"), SecretStr("own-key")
REQUEST = ModelRequest("s", (), (UserTurn("x"),), tools_allowed=False, deadline_seconds=10.0)


async def ask_second(llm: LlmSettings, shadow: ShadowSettings) -> None:
    async with AsyncExitStack() as stack:
        model = open_shadow(Settings(llm=llm, shadow=shadow), FixedClock(), stack)
        await model.ask(REQUEST)


@pytest.fixture
async def server():
    async with serve(lambda request, number: Said(text="fine")) as found:
        yield found


@pytest.mark.parametrize(
    ("key", "sent"), [(SecretStr(""), "Bearer none"), (OWN, "Bearer own-key")], ids=["no key", "own key"]
)
@pytest.mark.parametrize("main_at", ["", "http://127.0.0.1:9/v1"], ids=["provider", "gateway"])
async def test_another_server_does_not_get_the_key_of_the_first_model(server, main_at, key, sent):
    llm = LlmSettings(model="openai-chat:first", base_url=main_at, api_key=MAIN)
    shadow = ShadowSettings(model="openai-chat:second", base_url=f"{server.url}/v1", api_key=key)
    await ask_second(llm, shadow)
    assert [sent] == [headers.get("Authorization") for headers in server.headers]


@pytest.mark.parametrize("named", [False, True], ids=["by default", "named again"])
async def test_the_same_server_gets_the_same_key(server, named):
    address = f"{server.url}/v1"
    llm = LlmSettings(model="openai-chat:first", base_url=address, api_key=MAIN)
    shadow = ShadowSettings(model="openai-chat:second", base_url=address if named else "")
    await ask_second(llm, shadow)
    assert ["Bearer main-key"] == [headers.get("Authorization") for headers in server.headers]
