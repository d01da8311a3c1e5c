"""Simulation store: batches of simulations kept as Parquet files, so that a run that was cut short goes on where it was.

A file is named by what its batch was made of, seed and code among it, and by that and its own bytes: what was made of anything
else is never read for it, nor is a damaged file. It holds simulated values alone, which tell nothing of any record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import astuple
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dp_dask import __version__
from dp_dask.core.candidates import CandidateBatch
from dp_dask.core.fingerprint import fingerprints
from dp_dask.core.simulated import Failure
from dp_dask.errors import DpDaskError
from dp_dask.public.engines.kernel_is import Particles
from dp_dask.public.simulations import Simulations
from dp_dask.public.spread import Mapper, iterated

__all__ = ["stored"]

Kept = Simulations | Particles | CandidateBatch
FORM = "dp-dask/simulations/1"
LIBRARIES = ("numpy", "scipy", "numba")  # that random numbers and what is made of them come from
NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})\.parquet")


def stored(mapper: Mapper, folder: Path, *, reuse: bool) -> Mapper:
    """Give a map that keeps each result in the folder as it comes, and with ``reuse`` reads those that are there.

    Results are those of the map itself, bit for bit. What is missing or damaged is simulated, by one call of the map, and
    replaced. Results of other types than simulations, and of functions or items without a fingerprint, pass through unkept.
    Raises DpDaskError where the folder cannot be written to.
    """

    def through(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        try:
            keys = fingerprints([(_code(), function, item) for item in items])
        except TypeError:
            keys = []
        if not keys:
            yield from mapper(function, items)
            return
        held = _held(folder)
        found = {i: made for i, key in enumerate(keys) if reuse and (made := _read(key, held[key])) is not None}
        missing = [item for i, item in enumerate(items) if i not in found]
        with closing(iterated(mapper, function, missing)) as simulated:
            for i, key in enumerate(keys):
                if i not in found:
                    found[i] = next(simulated)
                    _write(folder, key, found[i], held[key])
                yield found.pop(i)

    return through


@cache
def _code() -> tuple[str, ...]:
    """Return what decides, beside its arguments, what a batch of this package's is: its own code and its libraries' versions."""
    package = Path(__file__).parent
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        whole.update(f"{path.relative_to(package)} ".encode() + path.read_bytes())
    libraries = [f"{name} {version(name)}" for name in LIBRARIES if find_spec(name) is not None]
    return FORM, __version__, whole.hexdigest(), *libraries


def _held(folder: Path) -> dict[str, list[Path]]:
    """Return the files in the folder by their keys."""
    found: dict[str, list[Path]] = defaultdict(list)
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(folder.iterdir()):
            if name := NAME.fullmatch(path.name):
                found[name[1]].append(path)
    return found


def _read(key: str, paths: Iterable[Path]) -> Kept | None:
    """Return what the first sound file holds; its bytes are judged before anything parses them."""
    for path in paths:
        content = b""
        with suppress(OSError):
            content = path.read_bytes()
        if path.name == _name(key, content):
            return _result(pq.read_table(pa.BufferReader(content), use_threads=False))
    return None


def _write(folder: Path, key: str, result: Any, others: Iterable[Path]) -> None:
    """Write one file, whole or not at all, in place of others with its key."""
    table = _table(result)
    if table is None:
        return
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_statistics=False)
    content = sink.getvalue().to_pybytes()
    path = folder / _name(key, content)
    part = path.with_name(f".{path.name}.part")
    problem = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        with suppress(FileNotFoundError):  # another run has just put the same bytes there
            part.replace(path)
        for other in others:
            if other != path:
                other.unlink(missing_ok=True)
    except OSError as error:
        problem = f"cannot be written to ({error.strerror}); what is there already is kept: mend this and run again"
    if problem:
        with suppress(OSError):  # half a file is of no use, and takes the room that is missing
            part.unlink()
        msg = f"{folder}: {problem}"
        raise DpDaskError(msg)


def _name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(key.encode() + content).hexdigest()}.parquet"


def _table(result: Any) -> pa.Table | None:
    """Return simulations as columns w_0 .., sum_0 .., is_whole, particles as v_0 .., log_weight, candidates as sum_0 ..

    Candidates that are compared record by record are not kept: they are whole data sets.
    """
    if isinstance(result, CandidateBatch) and result.data.ndim == 2:  # noqa: PLR2004  (sums [B, coordinate])
        columns = _columns("sum", result.data)
        failures = json.dumps([astuple(each) for each in result.failures])
        told = {"of": "candidates", "first": str(result.first), "failures": failures}
    elif isinstance(result, Simulations):
        columns = {**_columns("w", result.w), **_columns("sum", result.sums), "is_whole": result.is_whole}
        told = {"of": "simulations", "first_failures": json.dumps([astuple(each) for each in result.first_failures])}
    elif isinstance(result, Particles):
        columns, told = {**_columns("v", result.v), "log_weight": result.log_weight}, {"of": "particles"}
    else:
        return None
    return pa.table(columns, metadata={"form": FORM, "written_by": f"dp-dask {__version__}", **told})


def _result(table: pa.Table) -> Kept:
    told = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    if told["of"] == "particles":
        return Particles(_array("v", table), table["log_weight"].to_numpy())
    if told["of"] == "candidates":
        return CandidateBatch(int(told["first"]), _array("sum", table), _failures(told["failures"]))
    failures = _failures(told["first_failures"])
    return Simulations(_array("w", table), _array("sum", table), table["is_whole"].to_numpy(), failures)


def _failures(text: str) -> tuple[Failure, ...]:
    return tuple(Failure(row, tuple(theta), reason) for row, theta, reason in json.loads(text))


def _columns(name: str, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {f"{name}_{j}": column for j, column in enumerate(np.ascontiguousarray(array.T))}


def _array(name: str, table: pa.Table) -> NDArray[Any]:
    names = [each for each in table.column_names if each.startswith(f"{name}_")]
    return np.column_stack([table[each].to_numpy() for each in names])
