"""Slurm, once for all tests that a process runs with it."""

from __future__ import annotations

import pytest
import slurm_server


@pytest.fixture(scope="session")
def slurm_environment(tmp_path_factory):
    if problem := slurm_server.why_not():
        pytest.skip(problem)
    with slurm_server.running(tmp_path_factory.mktemp("slurm")) as env:
        yield env


@pytest.fixture
def slurm(slurm_environment, monkeypatch):
    for key, value in slurm_environment.items():
        monkeypatch.setenv(key, value)
    return slurm_environment
