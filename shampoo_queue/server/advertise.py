"""How the tools are shown to agents: texts that a model works by, schemas, and hints about what a call may do."""

from __future__ import annotations

import mcp_types as t

from .. import contract, errors
from ..contract import Tool, argument_schema, result_schema

INSTRUCTIONS = f"""\
A work queue that many executors share. To work: call job_claim; when it answers claimed:true, do what kind and \
payload say, then call job_complete with outcome completed or failed before lease_until. When you cannot go on, call \
job_release, so that another executor can claim the job. claimed:false means that there is nothing for you now: ask \
again later.

A claim is a lease. After lease_until, an instant in UTC, others may claim the job, and completing it answers \
lease_expired: your work on it then no longer counts. Nothing here renews a lease: ask for lease_seconds long enough \
for the work, up to {contract.limit("lease_max"):,}; a job that takes less is free as soon as you complete it. Each \
claim spends one of a job's {contract.limit("attempts")} attempts, so claim only what you will work on.

The _meta of a claim's result carries shampoo/fence, the number of this very claim: send it as _meta["shampoo/fence"] \
with job_complete and job_release, and a late call can never touch a later claim. Where you cannot see or send _meta, \
never complete or release a job whose lease may have ended: a job belongs to your principal, and another conversation \
of the same principal may hold it by then. Send any unique text as _meta["shampoo/request_id"] with a call that you \
may have to repeat: the repeat gets the first answer again.

payload is opaque text that comes back byte for byte; never parse and re-encode it for somebody else. A job or a lane \
that you may not see reads as missing."""

_DESTRUCTIVE = ("job_complete", "lane_merge", "lane_set_state")  # what they record stays
_IDEMPOTENT = ("job_complete",)


def advertised(tool: Tool) -> t.Tool:
    """Give a tool as agents see it."""
    return t.Tool(
        name=tool.name,
        title=tool.name.replace("_", " ").capitalize(),
        description=described(tool),
        input_schema=argument_schema(tool),
        output_schema=result_schema(tool),
        annotations=t.ToolAnnotations(
            read_only_hint=not tool.writes,
            destructive_hint=tool.name in _DESTRUCTIVE,
            idempotent_hint=tool.name in _IDEMPOTENT or not tool.writes,
            open_world_hint=False,
        ),
    )


def described(tool: Tool) -> str:
    """Write what a model needs in order to use a tool well."""
    refusals = "; ".join(f"{code} ({errors.REFUSALS[code].words})" for code in tool.refusals)
    common = ", ".join(contract.COMMON_REFUSALS)
    return "\n".join(
        (
            tool.summary,
            f"Access: {tool.access}.",
            f"Boundaries: {tool.boundaries}",
            f"Lifecycle: {tool.lifecycle}",
            f"Errors: {refusals + '; ' if refusals else ''}and as any tool: {common}.",
        )
    )
