"""The journal: an ordered list of facts in a SQL database, with kept states, finished jobs, and a single writer.

Facts are opaque JSON documents here; what they mean belongs to the runtime.
"""

from gavel.journal.database import journal_url, sqlite_url
from gavel.journal.errors import (
    CorruptJournalError,
    JournalError,
    JournalInUseError,
    LeadershipLostError,
    TemporaryJournalError,
)
from gavel.journal.facts import Entry
from gavel.journal.finished import FinishedJobRow, FinishedPage, FinishedQuery
from gavel.journal.integrity import CheckReport
from gavel.journal.queries import Fold, JournalReader, open_read_only, state_at
from gavel.journal.retention import CompactReport, Retention
from gavel.journal.salvage import SalvageReport, salvage
from gavel.journal.store import Journal
from gavel.journal.upgrade import OldJournal, Upgrade, Upgraded

__all__ = [
    "CheckReport",
    "CompactReport",
    "CorruptJournalError",
    "Entry",
    "FinishedJobRow",
    "FinishedPage",
    "FinishedQuery",
    "Fold",
    "Journal",
    "JournalError",
    "JournalInUseError",
    "JournalReader",
    "LeadershipLostError",
    "OldJournal",
    "Retention",
    "SalvageReport",
    "TemporaryJournalError",
    "Upgrade",
    "Upgraded",
    "journal_url",
    "open_read_only",
    "salvage",
    "sqlite_url",
    "state_at",
]
