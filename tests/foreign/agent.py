"""A pydantic-ai agent works a job: agent.py URL TOKEN. Runs in pydantic-ai's environment.

There is no model behind it. One agent lets pydantic-ai's `TestModel` call tools with arguments that it makes from our
schemas alone; the other plays a model that claims, looks at what it got, and completes.
"""

# mypy: ignore-errors
# ruff: noqa: I001
import asyncio
import json
import sys
from typing import Any

from fastmcp.client.transports import StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel


# The tools that can succeed with arguments out of the air.
INVENTED = ["job_claim", "job_create", "lane_list"]


def returned(messages: list[ModelMessage], tool: str) -> Any:
    """Give what a tool answered last; None when it was not called."""
    for message in reversed(messages):
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and part.tool_name == tool:
                return part.content if isinstance(part.content, dict) else json.loads(str(part.content))
    return None


def works(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Do what the instructions of the server ask a model to do."""
    claim, done = returned(messages, "job_claim"), returned(messages, "job_complete")
    if claim is None:
        return ModelResponse([ToolCallPart("job_claim", {"kind": "agent"})])
    if done is None:
        return ModelResponse([ToolCallPart("job_complete", {"job_id": claim["job_id"], "outcome": "completed"})])
    return ModelResponse([TextPart(f"{claim['payload']} {done['state']}")])


async def main(url: str, token: str) -> None:
    def tools() -> MCPToolset:
        return MCPToolset(StreamableHttpTransport(url, headers={"Authorization": f"Bearer {token}"}))

    answer = await Agent(FunctionModel(works), toolsets=[tools()]).run("go")
    invented = await Agent(TestModel(call_tools=INVENTED), toolsets=[tools()]).run("go")
    called = json.loads(invented.output)
    print(f"called {', '.join(sorted(called))}; {answer.output}")


asyncio.run(main(*sys.argv[1:]))
