"""Local: a machine whose Dask settings are those that ship, for clusters off it, still runs by itself."""

from __future__ import annotations

import dask
import distributed  # noqa: F401  (its defaults are merged with)
import pytest
import yaml
from dask_processes import SETTINGS

from dp_dask.clusters.local import plugin as Local  # noqa: N812
from dp_dask.hardened.certs import make_certs


@pytest.mark.parametrize(
    ("processes", "certificates", "scheme"), [(False, False, "inproc"), (True, False, "tcp"), (True, True, "tls")]
)
def test_settings_that_ask_for_encryption_ask_no_certificates_of_one_machine(tmp_path, processes, certificates, scheme):
    settings = yaml.safe_load(SETTINGS.read_text())
    if certificates:
        ca, cert, key = map(str, make_certs(tmp_path / "tls", 1))
        both = {"cert": cert, "key": key}
        settings["distributed"]["comm"]["tls"] |= {"ca-file": ca, "scheduler": both, "worker": both, "client": both}
    with (
        dask.config.set(dask.config.merge(dask.config.config, settings)),
        Local(processes=processes, workers=1).client() as client,
    ):
        assert client.scheduler.address.split("://")[0] == scheme
        assert client.submit(sum, [1, 2], pure=False).result() == 3
        assert scheme == "inproc" or "://127.0.0.1:" in client.scheduler.address
