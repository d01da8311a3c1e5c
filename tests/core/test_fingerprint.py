"""Fingerprints: equal for equal values in any process, different for whatever is different, code of the user's own too."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from threading import Lock

import numpy as np
import pytest

from dp_dask.core.fingerprint import fingerprints
from dp_dask.core.priors import Prior
from dp_dask.core.source_digest import source_digest


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Boxed:
    value: object

    @cached_property
    def told(self):
        return [self.value]


def one(value):
    return fingerprints([value])[0]


DIFFERENT = [
    None, True,
    False, 0, 1, 1.0, -0.0, 0.0, float("nan"), "1", "None", b"1", "", (), [], {}, (1,), [1], (1, 1), ((1, 1),), ((1,), 1),
    {1}, {1, 2}, frozenset({1}), {"a": 1, "b": 2}, {"b": 2, "a": 1}, Decimal(1), Decimal("1.0"), Path("a"), Path("b"), Colour.RED,
    Colour.BLUE, np.zeros(2), np.zeros(3), np.zeros((2, 1)), np.zeros(2, dtype=int), np.float64(1), np.float32(1), np.array(1.0),
    np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object), np.random.SeedSequence(1), np.random.SeedSequence(2),
    np.random.SeedSequence(1).spawn(2)[0], np.random.SeedSequence(1).spawn(2)[1], np.random.default_rng(1), Boxed(1), Boxed(2),
    Boxed((1,)), Prior, Colour, len, os.getcwd, one, partial(one, 1), partial(one, 2), 10**30, -1, "é", "\udc80",
]  # fmt: skip


def test_different_values_have_different_ones():
    assert len(set(fingerprints(DIFFERENT))) == len(DIFFERENT)


def test_equal_values_have_equal_ones_whatever_they_share():
    first, second = (bytes(2).hex() for _ in range(2))
    assert first is not second
    assert pickle.dumps((first, first)) != pickle.dumps((first, second))
    assert one((first, first)) == one((first, second))
    assert one(np.arange(6.0).reshape(2, 3)) == one(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    assert fingerprints(pickle.loads(pickle.dumps(DIFFERENT))) == fingerprints(DIFFERENT)  # noqa: S301


def test_what_was_looked_at_before_changes_nothing():
    boxed = Boxed(1)
    before = one(boxed)
    assert boxed.told == [1]
    assert one(boxed) == before


def test_what_has_a_life_of_its_own_has_none():
    loop = []
    loop.append(loop)
    for value in (lambda: 0, loop, sys, Lock(), (i for i in ())):
        with pytest.raises(TypeError, match="has no fingerprint"):
            one(value)


OWN = "import helpers\nclass Law:\n    def f(self):\n        from inside import late\n        return 1\n"


def fingerprint_elsewhere(folder, hash_seed="0"):
    """Of an instance of the user's class, with a set of texts beside it, in a new process."""
    code = (
        "from own import Law; from dp_dask.core.fingerprint import fingerprints;"
        "print(fingerprints([(Law(), {'a', 'b', 'c'}, 'd')])[0])"
    )
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_code_of_the_users_own_is_part_of_it(tmp_path):
    files = {
        "own.py": OWN,
        "helpers.py": "",
        "inside/__init__.py": "",
        "inside/late.py": "from . import deep",
        "inside/deep.py": "",
    }
    (tmp_path / "inside").mkdir()
    for name, text in {**files, "other.py": ""}.items():
        (tmp_path / name).write_text(text)
    first = fingerprint_elsewhere(tmp_path)
    assert fingerprint_elsewhere(tmp_path, "7") == first
    (tmp_path / "other.py").write_text("x = 1")  # which nothing imports
    assert fingerprint_elsewhere(tmp_path) == first
    found = {first}
    for name in files:
        with (tmp_path / name).open("a") as file:
            file.write("\n# edited")
        found.add(fingerprint_elsewhere(tmp_path))
    assert len(found) == 1 + len(files)


def test_a_module_without_a_file_has_no_source():
    with pytest.raises(TypeError, match="has no file"):
        source_digest("sys")
