"""The page of a series in a real browser: it loads without an error or a request, and fits a telephone and paper."""

from __future__ import annotations

import re

import pytest
from browsers import assert_fits, browse, needs_browser
from slot_files import night, published, write_slot

from dp_dask.public.series import read_series
from dp_dask.public.series_page import render_series


@pytest.fixture
def page(tmp_path):
    for i in (*range(12), 14, 15):
        measurements = {name: published() for name in ("visits", "a-rather-long-name-of-a-measurement")}
        lost = [night(12), night(13)] if i == 14 else []
        write_slot(tmp_path / "out", night(i), 0.3 + 0.01 * i, measurements, missed=lost, warnings=("far out",) * (i == 3))
    write_slot(tmp_path / "out", night(16), measurements={"visits": published(prior={"alpha": 2, "beta": 1})}, missed=[])
    return render_series(read_series(tmp_path / "out"))


@needs_browser
def test_it_loads_without_console_error_or_request_and_fits_400_pixels(tmp_path, page):
    assert_fits(tmp_path, page, 400)
    assert_fits(tmp_path, page.replace("<details>", "<details open>"), 400)
    assert "CONSOLE" not in browse(tmp_path, page, "--dump-dom").stderr


@needs_browser
def test_it_prints_to_paper(tmp_path, page):
    browse(tmp_path, page, f"--print-to-pdf={tmp_path / 'series.pdf'}", "--no-pdf-header-footer")
    pdf = (tmp_path / "series.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
