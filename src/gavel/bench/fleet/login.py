"""How one caller of a benchmark reaches the scheduler: in plaintext, or with TLS and a token or certificate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """An address, and what both sides prove there. Helpers receive it through a pipe, as JSON."""

    address: str
    authority: str = ""
    """In PEM; empty: plaintext."""
    server_name: str = ""
    token: str = field(default="", repr=False)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Sent with every call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self, options: Sequence[tuple[str, Any]], shown: ShownKey | None = None) -> grpc.aio.Channel:
        """A new channel, which shows a certificate if there is one."""
        if not self.authority:
            return grpc.aio.insecure_channel(self.address, options=options)
        key, chain = (None, None) if shown is None else (shown.key.encode(), shown.certificate.encode())
        trusted = grpc.ssl_channel_credentials(self.authority.encode(), key, chain)
        named = ("grpc.ssl_target_name_override", self.server_name)
        return grpc.aio.secure_channel(self.address, trusted, options=(*options, named))


@dataclass(frozen=True, slots=True)
class ShownKey:
    """The key and certificate of a modelled agent, in PEM."""

    key: str = field(repr=False)
    certificate: str


def read_key_pairs(path: str) -> dict[str, ShownKey]:
    """Read the keys and certificates of all agents, by agent."""
    return {agent: ShownKey(*pair) for agent, pair in json.loads(Path(path).read_text()).items()}
