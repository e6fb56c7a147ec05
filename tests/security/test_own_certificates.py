"""An operator's own certificate: the host name is checked, and the fingerprint is that of the operator's authority."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from certificates import Authority
from gavel import Client
from gavel.errors import GavelError
from gavel.runtime.listening import Listening
from gavel.runtime.server import ServeSettings, serving


def files(folder: Path, authority: Authority, name: str) -> dict[str, Path]:
    """A certificate for a host, and its key, in files."""
    shown = authority.server("head.example", addresses=(name,) if name[0].isdigit() else ())
    (folder / "chain.pem").write_bytes(shown.chain)
    (folder / "key.pem").write_bytes(shown.key)
    (folder / "key.pem").chmod(0o600)
    return {"tls_cert": folder / "chain.pem", "tls_key": folder / "key.pem"}


def test_a_scheduler_with_its_operators_certificate_is_recognised_by_the_operators_authority(tmp_path: Path) -> None:
    authority, other = Authority("lab"), Authority("lab")

    async def scene(short: Path) -> None:
        wanted = Listening(socket=short / "g.sock", **files(tmp_path, authority, "127.0.0.1"))  # type: ignore[arg-type]
        async with serving(ServeSettings(listen="127.0.0.1:0", folder=tmp_path / "state", listening=wanted)) as running:
            assert running.access.fingerprint == authority.fingerprint
            token = (tmp_path / "state" / "security" / "admin.token").read_text().strip()

            def asked(fingerprint: str) -> str:
                with Client(running.address, token=token, fingerprint=fingerprint, patience=0.0) as client:
                    return client.whoami().role

            assert await asyncio.to_thread(asked, authority.fingerprint) == "admin"
            with pytest.raises(GavelError, match="someone may be in between"):
                await asyncio.to_thread(asked, other.fingerprint)

    with tempfile.TemporaryDirectory(prefix="gavel-") as short:
        asyncio.run(asyncio.wait_for(scene(Path(short)), 60))


def test_a_certificate_for_another_host_is_not_accepted(tmp_path: Path) -> None:
    authority = Authority("lab")

    async def scene(short: Path) -> None:
        wanted = Listening(socket=short / "g.sock", **files(tmp_path, authority, "head.example"))  # type: ignore[arg-type]
        async with serving(ServeSettings(listen="127.0.0.1:0", folder=tmp_path / "state", listening=wanted)) as running:

            def asked() -> None:
                with Client(running.address, token="gvl_x", fingerprint=authority.fingerprint, patience=0.0) as client:  # noqa: S106
                    client.whoami()

            with pytest.raises(GavelError) as refusal:
                await asyncio.to_thread(asked)
            assert "token" not in str(refusal.value)

    with tempfile.TemporaryDirectory(prefix="gavel-") as short:
        asyncio.run(asyncio.wait_for(scene(Path(short)), 60))
