"""Marks: for tests of one of the two kinds of database."""

from __future__ import annotations

import pytest

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
only_postgresql = pytest.mark.parametrize("url", ["postgresql"], indirect=True)
