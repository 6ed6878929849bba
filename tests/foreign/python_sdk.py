"""The Python SDK 1.x works a job: python_sdk.py URL TOKEN. Runs in that SDK's environment."""

# mypy: ignore-errors
import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str, token: str) -> None:
    async with (
        streamablehttp_client(url, headers={"Authorization": f"Bearer {token}"}) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        said = await session.initialize()
        assert len((await session.list_tools()).tools) == 9

        async def call(name: str, arguments: dict[str, Any], **beside: Any) -> Any:
            meta = {f"shampoo/{key}": value for key, value in beside.items()}
            return await session.call_tool(name, arguments, meta=meta or None)

        await call("job_create", {"kind": "k", "payload": '"null"'})
        claim = await call("job_claim", {"kind": "k"})
        assert claim.structuredContent["payload"] == '"null"'
        end = {"job_id": claim.structuredContent["job_id"], "outcome": "completed"}
        fence = claim.meta["shampoo/fence"]
        late = await call("job_complete", end, fence=fence - 1)
        assert late.isError and json.loads(late.content[0].text)["error"]["code"] == "lease_expired"
        done = await call("job_complete", end, fence=fence)
        assert done.structuredContent["state"] == "completed"
        print(f"worked a job at {said.protocolVersion}")


asyncio.run(main(*sys.argv[1:]))
