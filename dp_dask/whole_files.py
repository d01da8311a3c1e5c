"""Whole files: written whole or not at all, into folders that are made where they are missing."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dp_dask.errors import DpDaskError

__all__ = ["make_folder", "replace_file", "write_files"]

ADVICE = "make room there, or choose another folder, and run again: a release that was committed is found again, free"


def write_files(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts by their files' names into a folder, made where it is missing; raises DpDaskError where that cannot be."""
    make_folder(folder)
    for name, text in texts.items():
        replace_file(folder / name, partial(Path.write_text, data=text, encoding="utf-8"))


def make_folder(folder: Path) -> None:
    """Make a folder where it is missing; raises DpDaskError where that cannot be."""
    problem = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    if problem:
        msg = f"{folder}: cannot be made ({problem}); {ADVICE}"
        raise DpDaskError(msg)


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Have a file written beside ``path``, then put in its place; raises DpDaskError where it cannot be written."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")  # another run of the slot may be writing the same file
    problem = ""
    try:
        write(part)
        part.replace(path)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    finally:
        with suppress(OSError):  # where nothing could be written
            part.unlink(missing_ok=True)
    if problem:
        msg = f"{path}: cannot be written ({problem}); {ADVICE}"
        raise DpDaskError(msg)
