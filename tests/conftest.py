"""Settings for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# A busy machine is slow now and then: time is the benchmark's business, not the tests'.
settings.register_profile("dp_dask", deadline=None)
settings.load_profile("dp_dask")

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
