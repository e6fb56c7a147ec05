"""What may be sent to the terminal of a job: checked by the scheduler for its users, and by the agent again."""

from __future__ import annotations

from gavel.limits import LONGEST_LINGER_SECONDS, LONGEST_REASON, MOST_LINES_OF_A_TERMINAL
from gavel.runtime.messages import TerminalKeys

LINGER_SECONDS = 60.0
"""How long a job outlives its last connection, unless its user wants another time."""


def keys_fault(keys: TerminalKeys) -> str | None:
    """Why keys cannot be typed, in a sentence; None if they can.

    >>> keys_fault(TerminalKeys(job="1", attempt=1, rows=24, columns=80)) is None
    True
    >>> keys_fault(TerminalKeys(job="1", attempt=1, rows=24))
    'a terminal has 1 to 4,096 rows and columns, not 24 x 0'
    """
    if keys.rows or keys.columns:
        sizes = keys.rows, keys.columns
        if not all(0 < size <= MOST_LINES_OF_A_TERMINAL for size in sizes):
            most = f"{MOST_LINES_OF_A_TERMINAL:,}"
            return f"a terminal has 1 to {most} rows and columns, not {keys.rows} x {keys.columns}"
    if not 0.0 <= keys.linger_seconds <= LONGEST_LINGER_SECONDS:
        hours = LONGEST_LINGER_SECONDS / 3600
        return f"a job outlives its last connection by at most {hours:g} h, not by {keys.linger_seconds:g} s"
    if len(keys.notice) > LONGEST_REASON or not keys.notice.isprintable():
        return "a notice is one line of at most 2,000 printable characters"
    return None
