"""Where the system's control groups are: the mounted hierarchies and the group of this process in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_MOUNTS, _OWN_GROUPS = Path("/proc/self/mounts"), Path("/proc/self/cgroup")


def hierarchies(controller: str) -> Iterator[tuple[Path, Path]]:
    """The mount of a controller's hierarchy and this process's group in it; the empty name is that of v2.

    In a container without a cgroup namespace our own group is what is mounted, which is offered, too.
    """
    try:
        mounts, own = _mounts(_MOUNTS.read_text()), _own_groups(_OWN_GROUPS.read_text())
    except OSError:  # not Linux
        return
    if controller in mounts and controller in own:
        root = Path(mounts[controller])
        for path in dict.fromkeys((Path(f"{mounts[controller]}{own[controller]}"), root)):
            if (path / "cgroup.procs").exists():
                yield root, path


def _mounts(text: str) -> dict[str, str]:
    """Where the hierarchies are mounted, by controller; v2 has the empty name.

    >>> _mounts("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\\ncgroup /c/freezer cgroup rw,freezer 0 0\\n")["freezer"]
    '/c/freezer'
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup2":
            found.setdefault("", place)
        elif kind == "cgroup":
            for controller in options.split(","):
                found.setdefault(controller, place)
    return found


def _own_groups(text: str) -> dict[str, str]:
    """The group of a process in each hierarchy, by controller.

    >>> _own_groups("6:freezer:/a\\n0::/b\\n")
    {'freezer': '/a', '': '/b'}
    """
    lines = [line.split(":", 2) for line in text.splitlines()]
    return {name: path for _, names, path in lines for name in names.split(",")}
