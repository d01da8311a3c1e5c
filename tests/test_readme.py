"""The README's commands and file are those that run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {file: file.read_text(encoding="utf-8") for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def test_ci_runs_the_readmes_own_two_lines(tmp_path):
    """.ci/run takes them from the README; here they are shown to it instead of run."""
    shell = tmp_path / "bash"
    shell.write_text('#!/bin/sh\necho "RAN: $4"\n')
    shell.chmod(0o755)
    script = (
        (ROOT / ".ci" / "run")
        .read_text()
        .replace("bash -euo pipefail -c", f"{shell} -euo pipefail -c")
        .replace("apt-get", "no-such-tool")
    )
    runner = ROOT / ".ci" / f".test-{os.getpid()}"
    runner.write_text(script)
    try:
        done = subprocess.run(["bash", runner], capture_output=True, text=True, check=True)
    finally:
        runner.unlink()
    fenced = re.findall(r"<!-- (?:run|test) -->\n```sh\n(.*?)\n```", README, re.DOTALL)
    assert len(fenced) == 2
    assert [line.removeprefix("RAN: ") for line in done.stdout.splitlines() if line.startswith("RAN: ")] == fenced


def test_the_readmes_pipeline_file_is_the_one_that_ships():
    shown = re.search(r"## A pipeline file\n\n```yaml\n(.*?)```", README, re.DOTALL)
    assert shown
    assert yaml.safe_load(shown.group(1)) == yaml.safe_load((ROOT / "pipelines" / "rand_hie.yaml").read_text())


def test_the_readme_names_every_plug_in():
    from dp_dask.core import plugins

    table = README[README.index("## What there is") :]
    for folder in plugins.FOLDERS:
        for name in plugins.names(folder):
            assert name in table, (folder, name)


def test_every_command_of_the_pages_exists():
    told = subprocess.run([sys.executable, "-m", "dp_dask", "--help"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"`dp-dask (\w+)", "".join(PAGES.values())):
        assert re.search(rf"^  {name}\b", told, re.MULTILINE), name


def test_links_of_the_pages_lead_somewhere():
    for file, text in PAGES.items():
        for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", text):
            leads = (file.parent / target).resolve() if target else file
            assert leads.exists(), (file.name, target)
            headings = re.findall(r"^#+ (.*)$", PAGES.get(leads, ""), re.MULTILINE)
            assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, (file.name, anchor)


def test_every_page_is_reached_from_the_readme():
    for file in PAGES:
        assert file.name == "README.md" or f"(docs/{file.name}" in README, file.name


def test_the_tables_are_of_the_paper_s_file_as_it_ships():
    """One row for each model, n and epsilon in each of two tables, a column for each method, and the file's own N and draws."""
    plan = yaml.safe_load((ROOT / "pipelines" / "papers" / "bernstein_sheldon_2018.yaml").read_text())
    page = PAGES[ROOT / "docs" / "papers.md"]
    shown = page[page.index("<!-- table -->") : page.index("<!-- end of table -->")]
    header = "| " + " | ".join(["model", "n", "epsilon", *plan["methods"]]) + " |"
    assert shown.count(header) == 2
    for model in plan["models"]:
        for n in plan["n"]:
            for epsilon in plan["epsilon"]:
                assert shown.count(f"\n| {model} | {n} | {epsilon} |") == 2
    assert f"KS distance of {plan['replicates']} ranks from uniform ({plan['draws']} draws a posterior)" in shown
