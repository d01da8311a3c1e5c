"""Pages in a real browser, where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

BROWSER = next(
    (found for name in ("chromium-headless-shell", "chromium", "google-chrome") if (found := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium; apt-get install chromium-headless-shell")


def browse(tmp_path, page, *flags):
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    common = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
    ]
    more = ["--disable-component-update", "--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [BROWSER, *common, *more, *flags, file.as_uri()], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done


PROBE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll") && !e.closest("svg"))
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName);
  const requests = performance.getEntriesByType("resource").map(e => e.name);
  document.documentElement.setAttribute("data-probe", JSON.stringify({width: innerWidth, wide, requests,
    scrolls: document.documentElement.scrollWidth > innerWidth + 1}));
});</script>"""


def assert_fits(tmp_path, page, width):
    """Load a page in a frame of so many pixels: nothing is wider, and nothing is asked of a network."""
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    assert policy.search(page)
    probed = policy.sub("", page).replace("</body>", PROBE + "</body>").replace("&", "&amp;").replace('"', "&quot;")
    show = "setTimeout(() => document.title = this.contentDocument.documentElement.dataset.probe, 200)"
    frame = f'<iframe onload="{show}" style="width:{width}px;height:900px;border:0" srcdoc="{probed}"></iframe>'
    outer = f'<!DOCTYPE html><html><head></head><body style="margin:0">{frame}</body></html>'
    done = browse(tmp_path, outer, "--virtual-time-budget=3000", "--dump-dom")
    probe = re.search(r"<head><title>(.*?)</title>", done.stdout)
    assert probe, done.stdout[:500]
    told = probe.group(1).replace("&quot;", '"')
    assert f'"width":{width}' in told
    assert '"wide":[]' in told
    assert '"scrolls":false' in told
    assert '"requests":[]' in told
