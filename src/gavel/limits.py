"""Limits on the numbers in files and options. A value beyond them is a typing error or in another unit.

Within them, sums, products and quotients of the input stay finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gavel.errors import InputError

LARGEST = 1e15
"""The largest number of steps, weight, price or factor: floats count whole numbers exactly up to 9e15."""
SMALLEST = 1e-15
"""The smallest of the numbers that must be greater than 0."""
FASTEST = 1e9
"""The highest rate, in steps per second."""
LONGEST_SECONDS = 1e10
"""The longest duration and the latest time, 317 years: Unix times in seconds fit until 2286."""
LONGEST_HOURS = LONGEST_SECONDS // 3600.0
MOST_ACCELERATORS = 1_000_000_000
"""The most accelerators of one type in a problem, and the most workers of a job in a file."""
MOST_SERVERS = 1_000_000
"""The most servers of one type in a problem: each is stored separately."""
MOST_WORKERS = 1_000_000
"""The most workers of a job that is submitted."""
MOST_RETRIES = 1_000_000
MOST_COPIES = 1_000_000
"""The most copies of a job in one submission."""
MOST_JOBS = 10_000_000
"""The most jobs in a generated workload: more do not fit into the memory of most machines."""
MOST_FAILURES = 10_000_000
"""The most random server failures."""
LONGEST_LABEL = 200
"""Characters of a name: of a job, template, entity, type, variable or agent."""
LONGEST_PATH = 4096
"""Characters of a working directory; what Linux takes."""
LONGEST_REASON = 2000
"""Characters of a sentence that an agent gives as a reason; the rest is cut off."""
MOST_TAGS = 64
"""The most tags of a job."""
MOST_AFTER = 1000
"""The most jobs and arrays that one job waits for."""
MOST_NOTIFIED = 8
"""The most URLs that are told about a job."""
MOST_MODULES = 64
"""The most environment modules of a job."""
MOST_BYTES = 2**50
"""The most memory: 1,024 TiB."""
MOST_CORES = 65_536
"""The most CPU cores of a server or for a worker."""
MOST_LINES_OF_A_TERMINAL = 4096
"""The most rows, and the most columns, of a terminal."""
LONGEST_LINGER_SECONDS = 24 * 3600.0
"""How long a job with a terminal may outlive its last connection."""
MOST_VARIABLES = 4096
"""The most variables in a job's environment."""
MOST_SECRETS = 64
"""The most secrets of a job."""
LONGEST_SECRET = 64 * 2**10
"""Bytes of the value of one secret."""
MOST_SECRET_BYTES = 2**20
"""Bytes of all secrets of a job: the system limits the whole environment of a process."""
MOST_TYPES = 64
"""The most types that one agent offers or one job names."""
MOST_ACCELERATORS_OF_AN_AGENT = 4096
MOST_TASKS_OF_AN_AGENT = 4 * MOST_ACCELERATORS_OF_AN_AGENT
"""The most processes that one message of an agent lists: two jobs share an accelerator, and old ones may be leaving."""
MOST_TYPES_OVER_TIME = 4 * MOST_TYPES
"""The most types that one agent offers in the life of a scheduler, which remembers every type."""
MOST_JOBS_IN_A_CALL = 10_000
"""The most jobs in one Submit call; clients send 1,000 at a time."""
MOST_UNFOLDED_BYTES = 64 * 2**20
"""All jobs of one array or grid together."""
MOST_WAITS_IN_A_CALL = 100_000
"""The most dependencies of all jobs in one Submit call."""
MOST_IDS_IN_A_CALL = 100_000
MOST_RANGES = 1000
"""The most ranges of ids, and the most arrays, in one query."""
MOST_PATTERNS = 32
"""The most patterns for names in one query: each is compared with every job."""
MOST_MESSAGE_BYTES = 4 * 2**20
"""The largest message that the scheduler accepts."""

_UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}


def at_most(limit: float) -> str:
    """A limit as messages name it; the longest duration is in seconds.

    >>> at_most(LARGEST), at_most(MOST_WORKERS), at_most(LONGEST_SECONDS)
    ('at most 1e+15', 'at most 1,000,000', 'at most 10,000,000,000 s (317 years)')
    """
    if limit == LONGEST_SECONDS:
        return f"at most {limit:,.0f} s (317 years)"
    return f"at most {limit:,.0f}" if limit < LARGEST else f"at most {limit:g}"


def as_float(number: float) -> float:
    """A number as a float; integers too large for a float become infinite.

    >>> as_float(3), as_float(-(10**400))
    (3.0, -inf)
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def check_positive(what: str, value: float, most: float = LARGEST) -> None:
    """Refuse a value that is not greater than 0, or is beyond the limits."""
    if not 0.0 < value < math.inf:
        raise InputError(f"{what} must be greater than 0 and finite, not {value:g}")
    if value < SMALLEST:
        raise InputError(f"{what} must be at least {SMALLEST:g}, not {value:g}")
    if value > most:
        raise InputError(f"{what} must be {at_most(most)}, not {value:g}")


def check_options(settings: Mapping[str, object]) -> None:
    """Refuse options that are not finite or too large; `..._seconds` and the like are limited by their unit."""
    for name, value in settings.items():
        if not isinstance(value, float):
            continue
        option = f"--{name.replace('_', '-')}"
        if not math.isfinite(value):
            raise InputError(f"{option} must be a finite number, not {value}")
        unit = next((word for word in name.split("_") if word in _UNITS), None)
        if unit is not None and value > (most := LONGEST_SECONDS // _UNITS[unit]):
            raise InputError(f"{option} must be at most {most:,.0f} {unit} (317 years), not {value:g}")
        if value > LARGEST:
            raise InputError(f"{option} must be {at_most(LARGEST)}, not {value:g}")
