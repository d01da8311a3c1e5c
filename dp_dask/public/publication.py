"""Publication: release.json, everything that inference needs and nothing that it must not see."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from dp_dask.core.names import NAME, is_name
from dp_dask.core.privacy import Spent
from dp_dask.core.release import Release
from dp_dask.core.selected import Selection
from dp_dask.core.unit import UnitOfProtection
from dp_dask.errors import ConfigError

__all__ = ["Publication", "Published", "read", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One measurement: the release, and the model or simulator and the prior that it was planned with."""

    model: str  # its name, or that of the simulator
    known: dict[str, Any]  # what is known of it
    is_simulator: bool = False
    prior: dict[str, Any]
    expected_records: float | None
    release: Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The whole file; ``schema`` names its version."""

    schema: Literal["dp-dask/release/2"] = "dp-dask/release/2"
    written_by: str
    dataset: str
    measurements: dict[str, Published]
    selections: dict[str, Selection] = field(default_factory=dict)  # by name, none that a measurement has
    total: Spent | None = None  # what the releases lose together; files of earlier versions, all in epsilon, leave it out

    @property
    def released(self) -> dict[str, Release | Selection]:
        """All releases by their names."""
        return {name: each.release for name, each in self.measurements.items()} | dict(self.selections)

    @property
    def unit(self) -> UnitOfProtection:
        """Whom all releases protect."""
        return next(iter(self.released.values())).request.unit


_json = TypeAdapter(Publication)


def write(publication: Publication, path: Path) -> None:
    """Write the file as strict JSON, decimals as text."""
    unused = set() if publication.selections else {"selections"}
    path.write_bytes(_json.dump_json(publication, indent=2, exclude=unused) + b"\n")


def read(path: Path) -> Publication:
    """Read and validate the file; raises ConfigError."""
    try:
        publication = _json.validate_json(path.read_bytes())
        released = publication.released
        relations = {each.request.neighbours for each in released.values()}
        units = {each.request.unit for each in released.values()}
        is_distinct = len(released) == len(publication.measurements) + len(publication.selections)
        if len(relations) == len(units) == 1 and is_distinct and all(is_name(name) for name in released):
            return publication
        problem = f"holds no measurement, or one whose name is not of {NAME}"
        if len(relations) > 1:
            problem = (
                "holds releases under both replace and add_remove, whose losses do not add up; keep them in files of their own"
            )
        elif len(units) > 1:
            problem = "holds releases that protect different units, whose losses do not add up; keep them in files of their own"
    except OSError as error:
        problem = f"cannot be read ({error.strerror}); give the release.json of a run"
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        problem = f"is not a release of this version: {place}: {first['msg']}"
    raise ConfigError.of(str(path), problem)
