"""Versions: the same program everywhere. Dask only warns where they differ, and then fails in odd ways, or computes them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["PACKAGES", "differences", "versions"]

PACKAGES = ("dask", "distributed", "cloudpickle", "numpy", "pyarrow", "dp-dask")


def versions() -> dict[str, str]:
    """Return the version of Python, without its last part, and of each package; empty for one that is not installed."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    return found


def differences(client: Client) -> list[str]:
    """Name what the scheduler or a worker has in another version than this process."""
    ours = versions()
    found = [f"scheduler: {each}" for each in _differing(ours, client.run_on_scheduler(versions))]
    told = {each for theirs in client.run(versions).values() for each in _differing(ours, theirs)}
    return found + [f"workers: {each}" for each in sorted(told)]


def _differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [f"{name} {theirs.get(name) or 'none'}, here {own or 'none'}" for name, own in ours.items() if theirs.get(name) != own]
