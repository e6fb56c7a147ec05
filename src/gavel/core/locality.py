"""How close together the workers of a run sit: the words in which rates, columns and placements speak of it."""

from __future__ import annotations

from enum import IntEnum


class Locality(IntEnum):
    """The smallest part of the cluster that holds all workers of a run; closer ones are less.

    Rates are indexed by locality along their last axis. Files and journals never hold these numbers, so another one may
    be inserted; ARCHITECTURE.md says what else it needs.

    >>> Locality.SERVER < Locality.CLUSTER, Locality.SERVER.wider
    (True, <Locality.CLUSTER: 1>)
    """

    SERVER = 0
    """One server, or as few as the number of workers allows."""
    CLUSTER = 1
    """Any servers of the type."""

    @property
    def wider(self) -> Locality:
        """The next larger part of the cluster."""
        return Locality(self + 1)

    @property
    def consolidated(self) -> bool:
        """What journals, saved states and the protocol hold instead."""
        return self is Locality.SERVER

    @classmethod
    def of(cls, consolidated: bool) -> Locality:
        """The locality that journals, saved states and the protocol mean."""
        return cls.SERVER if consolidated else cls.CLUSTER


FILE_NAMES = {Locality.SERVER: "consolidated", Locality.CLUSTER: "unconsolidated"}
"""What throughput tables and problem files call them."""
