"""A simulator of the user's own: found, its returned forms, refused in words, and sent to workers by reference."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dp_dask.core.fingerprint import fingerprints
from dp_dask.core.simulated import Simulated
from dp_dask.public.isolated import Isolated
from dp_dask.user_simulator import load_simulator

MODULE = """
import numpy as np
from dp_dask.core.fingerprint import fingerprints
from dp_dask.core.simulated import Simulated

def array(theta, n, rng):
    return theta[:, :1] * np.ones(n)
array.parameters, array.columns, array.domains = ("rate",), ("x",), ("positive",)

def mapping(theta, n, rng):
    return {"x": theta[:, :1] * np.ones(n), "y": np.zeros((len(theta), n), dtype=int)}
mapping.parameters, mapping.columns = ("a", "b"), ["x", "y"]

def flat(theta, n, rng):
    return Simulated(np.arange(len(theta)), {"x": np.ones(len(theta) * (len(theta) - 1) // 2)})
flat.parameters, flat.columns, flat.decides_n = ("a",), ("x",), True

def bare(theta, n, rng):
    return theta[:, :1] * np.ones(n)

class Family: pass
number = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_simulators.py").write_text(MODULE)
    return folder


def test_what_a_function_may_return(folder):
    rng = np.random.default_rng(0)
    theta = np.array([[1.0, 2], [3, 4]])
    one = load_simulator("own_simulators:array", folder)
    assert (one.parameters, one.columns, one.domains, one.decides_n) == (("rate",), ("x",), ("positive",), False)
    np.testing.assert_array_equal(one.simulate(theta[:, :1], 3, rng).dense("x"), [[1] * 3, [3] * 3])
    two = load_simulator("own_simulators:mapping", folder)
    assert (two.columns, two.domains) == (("x", "y"), ("real", "real"))
    found = two.simulate(theta, 2, rng)
    assert isinstance(found, Simulated)
    assert found.values["y"].dtype == np.float64
    ragged = load_simulator("own_simulators:flat", folder)
    assert ragged.decides_n
    assert ragged.simulate(theta[:, :1], None, rng).counts.tolist() == [0, 1]


def test_what_the_pipeline_file_says_goes_before_the_attributes(folder):
    named = load_simulator("own_simulators:bare", folder, ("p",), ("z",), ("probability",))
    assert (named.parameters, named.columns, named.domains) == (("p",), ("z",), ("probability",))
    assert load_simulator("own_simulators:array", folder, columns=("z",)).columns == ("z",)


def test_it_travels_by_reference(folder):
    simulator = load_simulator("own_simulators:array", folder)
    sent = pickle.dumps(simulator)
    assert len(sent) < 500
    again = pickle.loads(sent)  # noqa: S301
    assert again == simulator
    again.prepare()
    with pytest.raises(ValueError, match="'own_simulators_gone:f' cannot be imported"):
        type(simulator)("own_simulators_gone:f", Path("/"), ("a",), ("x",), ("real",)).prepare()


@pytest.mark.parametrize(
    ("reference", "options", "message"),
    [
        (
            "own_missing:f",
            {},
            r"cannot be imported \(ModuleNotFoundError: .*it is module:function, the module beside the pipeline",
        ),
        ("own_simulators:f", {}, "is NoneType; it must be a function simulate"),
        ("own_simulators:Family", {}, "is type; it must be a function simulate"),
        ("own_simulators:number", {}, "is int; it must be a function"),
        ("own_simulators:bare", {}, "parameters is None; give names, each once, in the pipeline file or as bare.parameters"),
        ("own_simulators:bare", {"parameters": ("a",)}, "columns is None"),
        ("own_simulators:array", {"columns": ("a", "a")}, r"columns is \('a', 'a'\)"),
        ("own_simulators:array", {"columns": "ab"}, "columns is 'ab'"),
        ("own_simulators:array", {"domains": ("real", "real")}, "give one of real, positive, probability for each of rate"),
        ("own_simulators:array", {"domains": ("whole",)}, r"domains are \('whole',\)"),
    ],
)
def test_what_is_no_simulator_is_refused(folder, reference, options, message):
    with pytest.raises(ValueError, match=message):
        load_simulator(reference, folder, **options)


def test_code_that_is_not_what_was_loaded_is_refused(folder):
    simulator = load_simulator("own_simulators:array", folder)
    with pytest.raises(ValueError, match=r"is not the code that was loaded: .* restart all processes"):
        replace(simulator, source="0" * 32).prepare()
    replace(simulator, source="").prepare()


def test_it_is_the_same_simulator_in_another_folder(folder):
    simulator = load_simulator("own_simulators:array", folder)
    moved, edited = replace(simulator, folder=Path("/elsewhere")), replace(simulator, source="0" * 32)
    first, second, third = fingerprints([simulator, moved, edited])
    assert first == second != third


def test_a_release_that_knows_no_folder_still_sends_the_simulator_to_other_processes(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load_simulator("own_simulators:array", folder)
    again = load_simulator("own_simulators:array", Path())
    assert again.folder == folder
    made = Isolated(60.0)(again, np.ones((2, 1)), 3, np.random.default_rng(0))
    np.testing.assert_array_equal(made.dense("x"), np.ones((2, 3)))


def test_what_is_in_no_file_is_refused(folder):
    with pytest.raises(ValueError, match="'sys:exit': the module sys has no file; a simulator is a function in a file"):
        load_simulator("sys:exit", folder, ("a",), ("x",))


def test_a_file_of_another_folder_is_not_taken_for_one_of_its_name(folder, tmp_path):
    load_simulator("own_simulators:array", folder)
    (tmp_path / "own_simulators.py").write_text(MODULE)
    (tmp_path / "queue.py").write_text(MODULE)
    for name in ("own_simulators", "queue"):
        with pytest.raises(ValueError, match=f"another module {name} is imported already, from .*; rename the file"):
            load_simulator(f"{name}:array", tmp_path)
