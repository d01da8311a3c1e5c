"""Cluster: a back end from its entry, by its kind, or by the name that the site gave it."""

from __future__ import annotations

from typing import Any

from dp_dask.clusters import configured
from dp_dask.core import plugins
from dp_dask.entries import strict_yaml
from dp_dask.entries.build import Faults, build, show
from dp_dask.errors import ConfigError

__all__ = ["CLUSTERS", "NAMED", "make_cluster"]

CLUSTERS = "dp_dask.clusters"
NAMED = "clusters.yaml"  # beside the pipeline file


def make_cluster(given: Any, faults: Faults, path: str = "cluster") -> Any:
    """Make a cluster from a mapping of kind and options, from a kind alone, or from a name; None where there was a fault.

    Names are the keys of ``clusters.yaml`` beside the file, and of ``dp-dask.clusters`` in Dask's own configuration.
    """
    kinds = [kind.replace("_", "-") for kind in plugins.names(CLUSTERS)]
    if isinstance(given, str) and given.replace("_", "-") not in kinds:
        named = _named(faults)
        if given not in named:
            names = f"; named here: {', '.join(named)}" if named else f"; {NAMED} beside the file may name others"
            faults.add(path, f"is {show(given)}; give a kind, {', '.join(kinds)}{names}")
            return None
        given, path = named[given], f"{path} {given}"
    given = {"kind": given} if isinstance(given, str) else given
    if not isinstance(given, dict) or not isinstance(given.get("kind"), str):
        faults.add(path, f"is {show(given)}; give a mapping with kind: {', '.join(kinds)}")
        return None
    try:
        cls = plugins.load(CLUSTERS, given["kind"])
    except ValueError as error:
        faults.add(f"{path}.kind", str(error))
        return None
    return build(cls, {key: value for key, value in given.items() if key != "kind"}, path, faults)


def _named(faults: Faults) -> dict[str, Any]:
    """Return the clusters that have names; those beside the file win."""
    named = {str(name): value for name, value in configured().items()}
    file = faults.folder / NAMED
    if not file.is_file():
        return named
    try:
        beside = strict_yaml.parse(file.read_text(encoding="utf-8"), NAMED)
    except (OSError, UnicodeDecodeError):
        faults.add(NAMED, "cannot be read, or is not UTF-8 text")
        return named
    except ConfigError as error:
        faults.problems += error.problems
        return named
    if not isinstance(beside, dict):
        faults.add(NAMED, "is no mapping; give each cluster as NAME: {kind: .., ..}")
        return named
    return named | beside
