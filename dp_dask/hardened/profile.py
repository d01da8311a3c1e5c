"""Profile: the settings of Dask that keep records out of files, logs and pages, and how a cluster is asked for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ENCRYPTION", "HARDENED", "OF_SCHEDULER", "OF_WORKERS", "faults", "hardened"]

ENCRYPTION = "distributed.comm.require-encryption"
# Set before any cluster starts: nothing of the records on disk, in logs or behind an open port.
HARDENED: dict[str, Any] = {
    "distributed.worker.memory.target": False,  # spilled data is plain text on disk
    "distributed.worker.memory.spill": False,
    "distributed.p2p.storage.disk": False,
    "distributed.diagnostics.erred-tasks.max-history": 0,  # keeps exception texts
    "distributed.diagnostics.computations.nframes": 0,
    "distributed.admin.log-length": 0,
    "distributed.admin.max-error-length": 200,
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
    "distributed.scheduler.no-workers-timeout": "10 minutes",
    "distributed.comm.retry.count": 3,
}


def hardened() -> dict[str, Any]:
    """Return the settings, to be set: Dask adds to lists that it is given."""
    return copy.deepcopy(HARDENED)


HARMLESS = {
    "distributed.http.health",
    "distributed.http.scheduler.api",  # Kubernetes' operator scales workers through it
    "distributed.http.scheduler.missing_bokeh",  # what Dask puts where there is no dashboard: one page that says so
}


def _is_off(value: Any) -> bool:
    return value is False


def _is_none(value: Any) -> bool:
    return value == 0 and value is not False


def _is_short(value: Any) -> bool:
    return isinstance(value, int) and value <= HARDENED["distributed.admin.max-error-length"]


def _is_bare(value: Any) -> bool:
    return isinstance(value, list) and set(value) <= HARMLESS


OF_WORKERS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "distributed.worker.memory.target": (_is_off, "false"),
    "distributed.worker.memory.spill": (_is_off, "false"),
    "distributed.p2p.storage.disk": (_is_off, "false"),
    "distributed.admin.log-length": (_is_none, "0"),
    "distributed.admin.max-error-length": (_is_short, "200 or less"),
    "distributed.worker.http.routes": (_is_bare, "[distributed.http.health]"),
}
OF_SCHEDULER: dict[str, tuple[Callable[[Any], bool], str]] = {
    "distributed.diagnostics.erred-tasks.max-history": (_is_none, "0"),
    "distributed.diagnostics.computations.nframes": (_is_none, "0"),
    "distributed.admin.log-length": (_is_none, "0"),
    "distributed.admin.max-error-length": (_is_short, "200 or less"),
    "distributed.scheduler.http.routes": (_is_bare, "[distributed.http.health]"),
}


def _settings(keys: list[str]) -> dict[str, Any]:
    """Read settings where this runs: on the scheduler or a worker."""
    import dask  # noqa: PLC0415

    return {key: dask.config.get(key, None) for key in keys}


def faults(client: Client, overrides: Collection[str] = ()) -> list[str]:
    """Ask scheduler and workers for their settings; name each one that is not as it must be, and not overridden.

    The settings are those that their processes were started with: an option of their command line that says otherwise is not
    seen.
    """
    found = [
        f"scheduler: {fault}" for fault in _wrong(client.run_on_scheduler(_settings, list(OF_SCHEDULER)), OF_SCHEDULER, overrides)
    ]
    of_each = client.run(_settings, list(OF_WORKERS))
    told = {fault for settings in of_each.values() for fault in _wrong(settings, OF_WORKERS, overrides)}
    return found + [f"workers: {fault}" for fault in sorted(told)]


def _wrong(
    settings: dict[str, Any], rules: dict[str, tuple[Callable[[Any], bool], str]], overrides: Collection[str]
) -> list[str]:
    return [
        f"{key} is {settings[key]!r} and must be {wanted}"
        for key, (is_right, wanted) in rules.items()
        if key not in overrides and not is_right(settings[key])
    ]
