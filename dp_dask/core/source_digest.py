"""Source digest: which code a module of the user's own is, so that an edited one is not taken for the one before."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["module_folder", "source_digest"]

INSTALLED = ("site-packages", "dist-packages")


@cache
def source_digest(module: str) -> str:
    """Return a SHA-256, in 32 hexadecimal digits, of an imported module's file and of the files that it imports beside it.

    Beside it are the modules under the same entry of the path, of an installed one those of its package; imports inside
    functions count too, and dp_dask itself does not. It is taken once a process, with the import as a rule: an edit after that
    is not what runs. Raises TypeError for a module without a file.
    """
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        msg = f"the module {module} has no file"
        raise TypeError(msg)
    first = Path(origin)
    root = _root(module, first)
    package = first.relative_to(root).parts[0].removesuffix(first.suffix) if root.name in INSTALLED else None
    texts: dict[str, bytes] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop()
        place = path.relative_to(root).as_posix()
        if place not in texts:
            texts[place] = path.read_bytes()
            waiting.extend(_beside(path, texts[place], root, package))
    whole = hashlib.sha256()
    for place, text in sorted(texts.items()):
        whole.update(f"{place} {len(text)} ".encode() + text)
    return whole.hexdigest()[:32]


def module_folder(module: str, otherwise: Path) -> Path:
    """Return the folder that an imported module of the user's own came from; for one that is installed the other one.

    Another process finds the module there, wherever it works itself.
    """
    root = _root(module, Path(sys.modules[module].__file__ or "").absolute())
    return otherwise if root.name in INSTALLED else root


def _root(module: str, first: Path) -> Path:
    """Return the entry of the path below which a module's file lies."""
    name = module.split(".") if module != "__main__" else [first.stem]
    return first.parents[len(name) - (first.stem != "__init__")]


def _beside(path: Path, text: bytes, root: Path, package: str | None) -> Iterator[Path]:
    """Yield the files under the root that a file imports."""
    tree: ast.AST = ast.Module([], [])
    if path.suffix == ".py":
        with suppress(SyntaxError, ValueError):  # such a file cannot be imported either
            tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in _names(node, path, root):
            if name[0] == "dp_dask" or (package is not None and name[0] != package):
                continue
            for depth in range(1, len(name) + 1):
                stem = root.joinpath(*name[:depth])
                yield from (found for found in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py") if found.is_file())


def _names(node: ast.AST, path: Path, root: Path) -> Iterator[list[str]]:
    """Yield the modules, as lists of names from the root, that an import may mean."""
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = list(path.relative_to(root).parent.parts)
        start = above[: len(above) - node.level + 1] if node.level else []
        yield from ([*start, *(node.module or "").split("."), alias.name] for alias in node.names if node.module)
        yield from ([*start, alias.name] for alias in node.names if not node.module)
