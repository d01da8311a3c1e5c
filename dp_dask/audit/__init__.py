"""Audit: the installed build against what it claims, on made-up records, and against faults that are planted to be found."""

from __future__ import annotations

from dp_dask.audit.auditing import audit
from dp_dask.audit.results import Audit, Claim, Control

__all__ = ["Audit", "Claim", "Control", "audit"]
