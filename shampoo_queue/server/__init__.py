"""The doors for everyone else: HTTP, MCP, metrics and pages, each a thin adapter over one `Desk`.

``shampoo serve`` runs them all in one process; many such processes may stand side by side on one Redis.
"""
