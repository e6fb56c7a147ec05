"""What receivers rely on: strict URLs, and signatures that cannot be forged, changed or repeated later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gavel import InputError, verify_notification
from gavel.client.webhooks import endpoint_of, host_only, signature_of

BODY, KEY = json.dumps({"event": "failed"}).encode(), "key"
SIGNED = {"Gavel-Timestamp": "1000.000", "Gavel-Signature": signature_of(KEY, "1000.000", BODY)}


def test_a_notification_is_believed_whatever_the_case_of_its_headers() -> None:
    lower = {name.lower(): value for name, value in SIGNED.items()}
    for headers in (SIGNED, lower):
        assert verify_notification(BODY, headers, KEY, now=1200.0) == {"event": "failed"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"body": BODY + b" "}, "another key, or was changed"),
        ({"key": "other"}, "another key"),
        ({"headers": {}}, "has no Gavel-Signature"),
        ({"headers": {**SIGNED, "Gavel-Timestamp": "1200.000"}}, "another key, or was changed"),
        ({"headers": {**SIGNED, "Gavel-Signature": "v1=é"}}, "another key"),
        ({"headers": {**SIGNED, "Gavel-Signature": SIGNED["Gavel-Signature"][3:]}}, "another key"),
        ({"now": 1301.0}, "301 s ago"),
        ({"now": 600.0}, "-400 s ago"),
        ({"now": float("nan")}, "nan s ago"),
    ],
)
def test_a_notification_that_was_forged_changed_or_kept_for_later_is_not_believed(
    changed: dict[str, Any], told: str
) -> None:
    given: dict[str, Any] = {"body": BODY, "headers": SIGNED, "key": KEY, "now": 1000.0, **changed}
    with pytest.raises(InputError, match=told):
        verify_notification(given["body"], given["headers"], given["key"], now=given["now"])


@pytest.mark.parametrize(
    "url",
    [
        "https://allowed.example.org@evil.example/",
        "https://user:pass@chat.example.org/",
        "https://chat.example.org\\@evil.example/",
        "https://chat.example.org/\r\nHost: evil",
        "https://chat.example.org/ x",
        "https://chat.example.org#@evil.example/",
        "https://chat.example.org:443:80/",
        "https://chat.example.org:/",
        "https://chat.example.org:99999/",
        "https://chat.example.org:0/",
        "https://chat.example.org..:443/",
        "https://[::1/",
        "https://[::1%25eth0]/",
        "https://[127.0.0.1]/",
        "https://::1/",
        "https://2130706433/",
        "https://0x7f.0.0.1/",
        "https://0x7f000001/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://%31%32%37.0.0.1/",
        "https://chät.example.org/",
        "https:///path",
        "https://",
        "https:chat.example.org",
        "ftp://chat.example.org/",
        "file:///etc/passwd",
        "HTTPS://chat.example.org/",
        "gopher://chat.example.org",
        "",
    ],
)
def test_urls_that_two_programs_could_read_differently_are_refused(url: str) -> None:
    with pytest.raises(InputError):
        endpoint_of(url)


def test_one_host_has_one_spelling() -> None:
    same = ["https://Chat.Example.ORG", "https://chat.example.org./", "https://chat.example.org:443/"]
    assert len({endpoint_of(url) for url in same}) == 1
    assert endpoint_of("https://[0:0::1]:8443/x?y=%20").authority == "[::1]:8443"


def test_messages_about_a_url_do_not_quote_what_may_be_a_secret() -> None:
    with pytest.raises(InputError) as error:
        endpoint_of("https://ann:hush@chat.example.org/capability")
    assert not [word for word in ("hush", "capability") if word in str(error.value)]
    assert host_only("https://chat.example.org") == "https://chat.example.org"
