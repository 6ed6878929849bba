"""Prometheus' own programs, as the system has them."""

from __future__ import annotations

import shutil

import pytest

from tests.conftest import IN_CI


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        assert not IN_CI, f"{name} is always there in CI"
        pytest.skip(f"there is no {name} on PATH: apt-get install prometheus")
    return found


def promtool() -> str:
    """Give the path of promtool."""
    return _program("promtool")


def prometheus() -> str:
    """Give the path of prometheus."""
    return _program("prometheus")
