"""A notifier that may call no host, for services that are assembled by hand."""

from __future__ import annotations

from pathlib import Path

from gavel.runtime.driver import Driver
from gavel.runtime.logs import Logs
from gavel.runtime.notify.notifier import Notifier
from gavel.runtime.notify.settings import NotifySettings
from gavel.security.vault import Vault


def silent(driver: Driver, folder: Path, logs: Logs) -> Notifier:
    """A notifier that has not been started."""
    vault = Vault.open(folder, driver.engine.journal.cluster)
    return Notifier(driver.engine, NotifySettings(), vault, logs, driver.write)
