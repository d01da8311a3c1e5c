"""The threat model names tests that are there, one or more for each line of its table."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows():
    table = TEXT.split("| line | mechanism | test |\n|---|---|---|\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


@cache
def names_in(file):
    """The names of a file's tests, as pytest collects them."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_line_has_a_mechanism_and_tests_that_exist(row):
    line, mechanism, backed = row
    assert line
    assert mechanism
    named = NAMED.findall(backed)
    assert named
    assert len(named) == backed.count("::")
    for file, name in named:
        assert (ROOT / file).is_file(), file
        assert name in names_in(file), f"{file}::{name}"


def test_the_table_is_read_whole():
    assert len(rows()) > 20
    assert sum(len(NAMED.findall(row[2])) for row in rows()) == len(NAMED.findall(TEXT))


def test_a_name_that_is_none_would_be_noticed():
    assert "test_a_name_that_is_none" not in names_in("tests/test_threat_model.py")
    assert "test_a_name_that_is_none_would_be_noticed" in names_in("tests/test_threat_model.py")


def test_the_readme_leads_to_it():
    assert "(docs/threat_model.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
