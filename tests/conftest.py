"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is slow now and then: time is the benchmark's business, not the tests'.
settings.register_profile("dp_dask", deadline=None)
settings.load_profile("dp_dask")
