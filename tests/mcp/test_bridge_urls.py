"""Which URLs a bridge may be pointed at."""

from __future__ import annotations

import pytest

from shampoo_queue.errors import ConfigurationError
from shampoo_queue.server.bridge import Remote
from tests.mcp.serving import run


@pytest.mark.parametrize(
    "url",
    [
        "http://queue.example",
        "http://10.0.0.1:8080",
        "ftp://127.0.0.1",
        "queue.example",
        "https://",
        "https://[::1",
        "https://user:secret@queue.example",
        "https://queue.example/?token=secret",
        "https://queue.example:99999",
    ],
)
def test_a_url_that_would_show_the_token_or_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Remote(url, "shp_x")
    assert "secret" not in str(error.value)


def test_urls_that_may_be_used() -> None:
    async def story() -> None:
        for url in ("https://queue.example", "http://127.0.0.1:1", "http://[::1]:1/base/", "http://localhost"):
            await Remote(url, "shp_x").__aexit__()
        await Remote("http://queue.example", "shp_x", allow_http=True).__aexit__()

    run(story)
