from __future__ import annotations

import dataclasses

import pytest

from dp_dask.core import plugins

MODELS, SOURCES = "dp_dask.models", "dp_dask.private.sources"


@pytest.mark.parametrize("folder", plugins.FOLDERS)
def test_every_plug_in_of_a_folder_is_found_by_its_files_name(folder: str):
    found = plugins.names(folder)
    assert found == sorted(found)
    assert found
    for name in found:
        assert plugins.load(folder, name).__module__ == f"{folder}.{name}"


@pytest.mark.parametrize("folder", [MODELS, SOURCES, "dp_dask.clusters"])
def test_a_plug_in_that_takes_options_is_a_frozen_dataclass(folder: str):
    for name in plugins.names(folder):
        plugin = plugins.load(folder, name)
        assert dataclasses.is_dataclass(plugin)
        assert plugin.__dataclass_params__.frozen


def test_the_known_plug_ins_are_there():
    assert {"bernoulli", "exponential", "geometric", "normal", "poisson"} <= set(plugins.names(MODELS))
    assert {"csv", "delta", "iceberg", "ipc", "parquet"} <= set(plugins.names(SOURCES))


@pytest.mark.parametrize(
    ("folder", "name", "message"),
    [
        (MODELS, "poison", "unknown model 'poison'; did you mean 'poisson'? known: bernoulli, "),
        (MODELS, "zzz", "unknown model 'zzz'; known: bernoulli, "),
        (SOURCES, "parket", "unknown source 'parket'; did you mean 'parquet'? known: adbc, csv, "),
        ("dp_dask.public.engines", "latice", "unknown engine 'latice'; did you mean 'lattice'? known: "),
        ("dp_dask.clusters", "locale", "unknown cluster 'locale'; did you mean 'local'? known: "),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(folder: str, name: str, message: str):
    with pytest.raises(ValueError, match="unknown") as caught:
        plugins.load(folder, name)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["", "__init__", "Poisson", "poisson ", "../errors", "os", "csv.plugin", "poisson.plugin"])
def test_nothing_is_imported_but_a_name_of_the_folder(name: str):
    with pytest.raises(ValueError, match="unknown model"):
        plugins.load(MODELS, name)


@pytest.mark.parametrize("folder", ["os", "dp_dask", "dp_dask.gate", "", "dp_dask.models.poisson"])
def test_a_folder_without_plug_ins_is_refused(folder: str):
    with pytest.raises(ValueError, match=f"^{folder} holds no plug-ins$"):
        plugins.load(folder, "poisson")
