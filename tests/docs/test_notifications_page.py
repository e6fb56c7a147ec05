"""The receiver on the page about notifications believes what the scheduler signs, and nothing else."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gavel.client.webhooks import SIGNATURE, TIMESTAMP, signature_of

PAGE = Path(__file__).parents[2] / "docs" / "notifications.md"


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_receiver_on_the_page_believes_only_what_was_signed_with_the_key(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GAVEL_SIGNING_KEY", "key")
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(programs()[0], str(PAGE), "exec"), names)  # noqa: S102 - our own page
    body, timestamp = json.dumps({"text": "job 1 failed"}).encode(), f"{time.time():.3f}"
    with http.server.HTTPServer(("127.0.0.1", 0), names["Receiver"]) as server:

        def answer() -> None:
            for _ in range(2):
                server.handle_request()

        thread = threading.Thread(target=answer)
        thread.start()
        for key, status in (("key", 204), ("another", 403)):
            headers = {TIMESTAMP: timestamp, SIGNATURE: signature_of(key, timestamp, body)}
            with closing(http.client.HTTPConnection("127.0.0.1", server.server_port)) as connection:
                connection.request("POST", "/", body, headers)
                assert connection.getresponse().status == status
        thread.join()
    assert capfd.readouterr().out == "job 1 failed\n"


def test_the_command_on_the_page_is_valid() -> None:
    for program in programs():
        compile(program, str(PAGE), "exec")
