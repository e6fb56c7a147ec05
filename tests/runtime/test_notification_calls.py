"""One call to a receiver: whom it reaches, and that no answer makes it long, large or talkative."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from certificates import Authority
from gavel.core.errors import InputError
from gavel.runtime.notify.calling import CallResult, call
from gavel.runtime.notify.hosts import AllowedHosts, Permission
from gavel.runtime.notify.settings import NotifySettings
from gavel.runtime.notify.site_command import run_command
from receivers import receiving

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SECONDS = 0.3
LISTED = AllowedHosts.of(
    ["Chat.example.org", "hooks.example.org:8443", "*.wild.example.org", "http://127.0.0.1:9000", "[::1]:9001"]
)


# ---- whom it may reach ----


@pytest.mark.parametrize(
    ("url", "public_only"),
    [
        ("https://chat.example.org/x", False),
        ("https://CHAT.EXAMPLE.ORG.:443/x", False),
        ("https://hooks.example.org:8443/", False),
        ("https://a.wild.example.org/", True),
        ("https://a.b.wild.example.org/", True),
        ("http://127.0.0.1:9000/", False),
        ("https://[0:0::1]:9001/", False),
    ],
)
def test_listed_hosts_may_be_called(url: str, public_only: bool) -> None:
    assert LISTED.permit(url).public_only is public_only


@pytest.mark.parametrize(
    "url",
    [
        "http://chat.example.org/",
        "https://chat.example.org:8443/",
        "https://hooks.example.org/",
        "https://wild.example.org/",
        "https://evilwild.example.org/",
        "https://wild.example.org.evil.example/",
        "https://a.wild.example.org:8443/",
        "https://evil.chat.example.org/",
        "https://127.0.0.1:9000/",
        "http://127.0.0.1/",
        "http://localhost:9000/",
        "http://[::ffff:127.0.0.1]:9000/",
        "https://[::2]:9001/",
        "http://169.254.169.254/latest/meta-data",
    ],
)
def test_other_hosts_ports_and_schemes_may_not(url: str) -> None:
    with pytest.raises(InputError, match=r"may not be called; the operator has listed Chat\.example\.org, hooks"):
        LISTED.permit(url)


def test_ever_new_names_below_a_domain_share_one_place_and_a_listed_name_has_its_own() -> None:
    hosts = AllowedHosts.of(["*.example.org", "chat.example.org"])
    names = ["a", "b", "a.b", "chat"]
    found = [hosts.permit(f"https://{name}.example.org/") for name in names]
    assert [(each.place, each.public_only) for each in found] == [
        *[("*.example.org", True)] * 3,
        ("chat.example.org", False),
    ]


@pytest.mark.parametrize(
    "text", ["*", "*.org", "*.0.0.1", "ftp://x.org", "a b", "https://u@x.org", "x.org/path", "", "x.org:http"]
)
def test_an_operators_entry_that_makes_no_sense_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(InputError, match="--notify-hosts"):
        NotifySettings(hosts=(text,))


def test_settings_of_the_command_are_checked() -> None:
    for bad in (
        {"events": ("failed",)},
        {"command": ("mail",), "events": ("fialed",)},
        {"command": ("",)},
        {"command": ("mail",), "command_seconds": 0.0},
        {"command": ("mail",), "commands_at_once": 0},
        {"stuck_minutes": 0.0},
    ):
        with pytest.raises(InputError, match="--"):
            NotifySettings(**bad)


def permitted(port: int, scheme: str = "http", host: str = "127.0.0.1", *, public_only: bool = False) -> Permission:
    url = f"{scheme}://{host}:{port}/hook"
    found = AllowedHosts.of([f"{scheme}://{host}:{port}"]).permit(url)
    return Permission(found.endpoint, public_only)


def called(permission: Permission, context: ssl.SSLContext | None = None, seconds: float = SECONDS) -> CallResult:
    context = context or ssl.create_default_context()
    return asyncio.run(call(permission, {"Gavel-Event": "test"}, b"{}", seconds=seconds, context=context))


def test_names_below_a_listed_domain_do_not_lead_into_the_schedulers_own_network() -> None:
    with receiving() as receiver:
        answer = called(permitted(receiver.port, host="localhost", public_only=True), seconds=5.0)
        assert "localhost has no public address" in answer.trouble
        assert not receiver.requests
        assert called(permitted(receiver.port, host="localhost"), seconds=5.0) == CallResult(204)


def test_neither_a_redirect_nor_a_proxy_of_the_environment_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver, receiving() as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.host)
        receiver.status, receiver.location = 307, other.url
        answer = called(permitted(receiver.port), seconds=5.0)
        assert (answer.status, len(receiver.requests), other.requests) == (307, 1, [])


# ---- what it does with answers ----


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection to the end, whatever the other side does."""
    with suppress(ConnectionError):
        writer.close()
        await writer.wait_closed()


async def _answered(talk: Talk) -> tuple[CallResult, float]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await talk(reader, writer)
        await closed(writer)
        over.set()

    over = asyncio.Event()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    begin = asyncio.get_running_loop().time()
    context = ssl.create_default_context()
    answer = await call(permitted(port), {}, b"{}", seconds=SECONDS, context=context)
    took = asyncio.get_running_loop().time() - begin
    server.close()
    await over.wait()
    return answer, took


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
    await asyncio.sleep(3 * SECONDS)


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
    for _ in range(60):
        writer.write(b"H")
        await writer.drain()
        await asyncio.sleep(SECONDS / 20)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
    for _ in range(200):
        writer.write(b"x" * 65536)
        await writer.drain()


async def other_protocol(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"{}")
    writer.write(b"220 mail.example.org ESMTP secret\r\n")
    await writer.drain()


async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"{}")
    writer.close()


@pytest.mark.parametrize(
    ("talk", "told"),
    [
        (silent, "no answer within 0.3 s"),
        (dripping, "no answer within 0.3 s"),
        (endless, "its answer is not HTTP"),
        (other_protocol, "its answer is not HTTP"),
        (gone, "the connection ended without an answer"),
    ],
)
def test_a_strange_receiver_costs_bounded_time_and_is_not_quoted(talk: Talk, told: str) -> None:
    answer, took = asyncio.run(_answered(talk))
    assert (answer.status, answer.trouble) == (0, told)
    assert took < SECONDS + 5.0


def test_a_receiver_that_is_not_there_is_a_refused_connection() -> None:
    with receiving() as receiver:
        port = receiver.port
    assert called(permitted(port)) == CallResult(trouble="the connection was refused")


def test_a_receiver_must_show_a_valid_certificate(tmp_path: Path) -> None:
    known, stranger = Authority(), Authority()

    async def scene(shown: Authority) -> CallResult:
        files = shown.server("localhost")
        (tmp_path / "key").write_bytes(files.key)
        (tmp_path / "chain").write_bytes(files.chain)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(tmp_path / "chain", tmp_path / "key")
        requests: list[bytes] = []
        over = asyncio.Event()

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requests.append(await reader.readuntil(b"{}"))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await closed(writer)
            over.set()

        server = await asyncio.start_server(hear, "127.0.0.1", 0, ssl=serving)
        port = server.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cadata=known.pem)
        permission = permitted(port, "https", "localhost")
        answer = await call(permission, {}, b"{}", seconds=5.0, context=context)
        server.close()
        if shown is known:
            await over.wait()
        assert bool(requests) is (shown is known)
        return answer

    assert asyncio.run(scene(known)) == CallResult(200)
    assert "certificate is not valid" in asyncio.run(scene(stranger)).trouble


# ---- the site's command ----


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/bin/sh", "-c", "cat >/dev/null"), ""),
        (("/bin/sh", "-c", "exit 0"), ""),
        (("/bin/sh", "-c", "exit 3"), "/bin/sh ended with exit code 3"),
        (("/bin/sh", "-c", "sleep 60"), "/bin/sh took longer than 0.3 s"),
        (("/no/such/program",), "/no/such/program cannot be run: no such file or directory"),
    ],
)
def test_a_command_that_fails_or_hangs_is_told_as_a_clause(command: tuple[str, ...], told: str) -> None:
    assert asyncio.run(run_command(command, b"{}" * 100_000, seconds=SECONDS)) == told


def test_the_command_does_not_get_the_schedulers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAVEL_JOURNAL", "postgresql://gavel:password@host")
    asyncio.run(run_command(("/bin/sh", "-c", f"env > {tmp_path}/env"), b"{}", seconds=10.0))
    assert "password" not in (tmp_path / "env").read_text()
