"""The report in a real browser: it loads without an error or a request, and fits a telephone and paper."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pytest
from browsers import assert_fits, browse, needs_browser
from cases import BY_NAME, observation

from dp_dask.core.privacy import Neighbours, Spent, Unit
from dp_dask.core.release import Release, Request
from dp_dask.public.posterior import Posterior, summarise
from dp_dask.public.publication import Publication, Published
from dp_dask.public.report import Spending, render


@pytest.fixture(scope="module")
def page():
    from dp_dask.public.infer import infer

    case = BY_NAME["geometric"]
    like = observation(case, n=500, epsilon=0.5, y=1900)
    request = Request(dataset="d<&>", statistic=like.statistic, neighbours=Neighbours.REPLACE, n=500, epsilon=Decimal("0.5"))
    release = Release(
        id="0f" * 16, created="2026-01-02T03:04:05+00:00", request=request, sampler="opendp 0", sensitivity=30, scale=60.0,
        privacy_loss=0.5, noisy_sums=(1900,), noisy_count=None,
    )  # fmt: skip
    inference = infer(np.random.default_rng(1), like, case.prior, 4000)
    posteriors = [
        Posterior(
            measurement=name,
            model="geometric",
            parameters=("p",),
            prior=case.prior,
            release=release,
            observation=like,
            inference=inference,
        )
        for name in ("visits", "a-rather-long-name-of-a-measurement")
    ]
    published = Published(model="geometric", known={}, prior={"alpha": 1, "beta": 1}, expected_records=None, release=release)
    publication = Publication(written_by="test", dataset="d<&>", measurements={p.measurement: published for p in posteriors})
    spending = Spending(charged=Decimal("0.5"), spent=Spent(unit=Unit.EPSILON, amount=Decimal("0.5")), granted=Decimal(2))
    return render(publication, posteriors, [s for p in posteriors for s in summarise(p)], spending)


def test_the_page_says_what_is_and_what_is_not_protected(page):
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    assert "Every single record is protected." in text
    assert "epsilon = 0.5, in all" in text  # one release under two names is paid for once
    assert "any one record's values replaced by any others" in text.replace("&#39;", "'")
    assert "k records are protected with k times the epsilon only" in text
    assert "the number of records, 500, which is public" in text
    assert "1.5 is left" in text
    assert "1.649" in text  # e^0.5


def test_the_page_is_self_contained(page):
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']+""", re.sub(r"xlink:href=\"#[^\"]*\"", "", page))
    assert "d&lt;&amp;&gt;" in page  # names are escaped


@needs_browser
def test_it_loads_without_console_error_or_request_and_fits_400_pixels(tmp_path, page):
    assert_fits(tmp_path, page, 400)
    assert "CONSOLE" not in browse(tmp_path, page, "--dump-dom").stderr


@needs_browser
def test_it_prints_to_paper(tmp_path, page):
    browse(tmp_path, page, f"--print-to-pdf={tmp_path / 'report.pdf'}", "--no-pdf-header-footer")
    pdf = (tmp_path / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 1 <= pages <= 6
