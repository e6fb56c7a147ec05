"""Seals secrets of jobs with a key that is in a file apart from the journal, and unseals them.

A sealed value is bound to its cluster, job and name: moved elsewhere, it cannot be unsealed.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gavel.core.errors import GavelError

FOLDER = "security"
FILE = "secrets.key"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_MARK_BYTES = 8
_VERSION = b"\x01"


class VaultError(GavelError):
    """A secret cannot be sealed or unsealed."""


class Vault:
    """The key of one scheduler's secrets. Any thread may use it."""

    def __init__(self, path: Path, cluster: str, key: bytes | None = None, fault: str = "") -> None:
        self.path = path
        self._cluster = cluster
        self._key = key
        self._fault = fault
        """Why the key in the file cannot be used, as a sentence."""
        self._turn = threading.Lock()

    @classmethod
    def open(cls, folder: Path, cluster: str) -> Vault:
        """The vault in a scheduler's folder; its key is made when the first secret is sealed."""
        path = folder / FOLDER / FILE
        try:
            return cls(path, cluster, _read(path))
        except VaultError as error:  # only jobs with secrets need it
            return cls(path, cluster, fault=str(error))

    def __repr__(self) -> str:
        return f"Vault({str(self.path)!r})"

    def prepare(self) -> None:
        """Make the key if there is none; VaultError if that fails, or the one that is there cannot be used."""
        with self._turn:
            if self._fault:
                raise VaultError(self._fault)
            if self._key is None:
                self._key = _made(self.path)

    def derive(self, purpose: str, *about: str) -> bytes:
        """Another key, for one purpose: the same for the same words, and it says nothing about the vault's own."""
        self.prepare()
        return hmac.digest(self._known(), json.dumps([purpose, self._cluster, *about]).encode(), "sha256")

    def seal(self, job: str, name: str, value: str) -> bytes:
        """Encrypt a value for this job and name."""
        self.prepare()
        key, nonce = self._known(), secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + _mark(key) + nonce + AESGCM(key).encrypt(nonce, value.encode(), self._bound(job, name))

    def unseal(self, job: str, name: str, sealed: bytes) -> str:
        """Decrypt a value that was sealed for this job and name."""
        key, what = self._known(), f"the secret {name} of job {job}"
        mark, nonce, body = _parts(sealed, what)
        if mark != _mark(key):
            raise VaultError(
                f"{what} was sealed with another key than the one in {self.path}; restore that key and restart the"
                " scheduler, or submit the job again"
            )
        try:
            return AESGCM(key).decrypt(nonce, body, self._bound(job, name)).decode()
        except (InvalidTag, UnicodeDecodeError):
            raise VaultError(
                f"{what} is damaged, or was moved from another job or name; submit the job again"
            ) from None

    def _known(self) -> bytes:
        if self._key is None:
            raise VaultError(
                self._fault
                or f"the key of secrets, {self.path}, is missing; restore it and restart the scheduler, or submit the"
                " job again"
            )
        return self._key

    def _bound(self, job: str, name: str) -> bytes:
        return json.dumps(["gavel secret", self._cluster, job, name]).encode()


def _mark(key: bytes) -> bytes:
    """Tells keys apart, and says nothing about them."""
    return sha256(b"gavel key mark\0" + key).digest()[:_MARK_BYTES]


def _parts(sealed: bytes, what: str) -> tuple[bytes, bytes, bytes]:
    start, middle = len(_VERSION), len(_VERSION) + _MARK_BYTES
    if len(sealed) <= middle + _NONCE_BYTES or sealed[:start] != _VERSION:
        raise VaultError(f"{what} is damaged, or was sealed by a later version of gavel; submit the job again")
    return sealed[start:middle], sealed[middle : middle + _NONCE_BYTES], sealed[middle + _NONCE_BYTES :]


def _read(path: Path) -> bytes | None:
    """The key in a file; None if there is no file."""
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise VaultError(
            f"the key of secrets, {path}, cannot be read: {reason}; fix it and restart the scheduler"
        ) from None
    except ValueError:  # quoting it could show a part of the key
        raise _damaged(path) from None
    if len(key) != _KEY_BYTES:
        raise _damaged(path)
    return key


def _damaged(path: Path) -> VaultError:
    return VaultError(
        f"the key of secrets, {path}, is damaged; restore it and restart the scheduler, or remove it and submit jobs"
        " with secrets again"
    )


def _made(path: Path) -> bytes:
    """A new key in a file that is complete or not there at all; if another process was faster, its key."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write(fresh, secrets.token_bytes(_KEY_BYTES).hex() + "\n")
            with suppress(FileExistsError):
                os.link(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
        _sync(path.parent)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise VaultError(
            f"no key for secrets can be made in {path.parent}: {reason}; the job was not submitted"
        ) from None
    key = _read(path)
    if key is None:
        raise VaultError(f"the key of secrets, {path}, was removed while it was made; submit the job again")
    return key


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
