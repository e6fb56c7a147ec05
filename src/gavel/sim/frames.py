"""Rows as pandas data frames, where pandas is installed. Gavel does not depend on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gavel.core.errors import NotInstalledError

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], floats: Collection[str]) -> pd.DataFrame:
    """A data frame with these columns; those of `floats` hold numbers, with NaN for None."""
    try:
        import pandas as pd  # noqa: PLC0415 - optional, and slow to load
    except ImportError:
        raise NotInstalledError("a data frame", "pandas", "gavel-scheduler[notebook]") from None
    return pd.DataFrame(list(rows), columns=list(columns)).astype(dict.fromkeys(floats, float))
