"""Forms: requests and releases as the ledger writes them down; equal requests have equal bytes, in every version."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter

from dp_dask.core.privacy import Unit
from dp_dask.core.release import Release, Request
from dp_dask.core.selected import Selection, SelectionRequest

__all__ = ["canonical", "parsed", "release_json", "request_json", "written"]

Released = TypeVar("Released", bound=Release | Selection)
release_json: TypeAdapter[Release] = TypeAdapter(Release)
request_json = TypeAdapter(Request)
_selection: TypeAdapter[Selection] = TypeAdapter(Selection)
_selection_request = TypeAdapter(SelectionRequest)


def canonical(request: Request | SelectionRequest) -> bytes:
    """Return what the digest of a request is of."""
    adapter: TypeAdapter[Any] = _selection_request if isinstance(request, SelectionRequest) else request_json
    return adapter.dump_json(request, exclude=_unasked(request))


def written(release: Release | Selection) -> str:
    """Return a release as JSON."""
    adapter: TypeAdapter[Any] = _selection if isinstance(release, Selection) else release_json
    unasked = {"where", "unit"} & _unasked(release.request)
    left_out: dict[str, Any] = {"request": unasked} if unasked else {}
    if not release.snapshot:
        left_out["snapshot"] = True
    return adapter.dump_json(release, exclude=left_out).decode()


def _unasked(request: Request | SelectionRequest) -> set[str]:
    """Name the fields that a request leaves open: without them it has the digest that it had before there were such fields."""
    unasked = set() if request.where is not None else {"where"}
    unasked |= set() if request.unit.is_person else {"unit"}
    if isinstance(request, Request):
        unasked.add("epsilon" if request.loss.unit is Unit.RHO else "rho")
    return unasked


def parsed(text: str, kind: type[Released]) -> Released:
    """Read a release of this kind; raises pydantic's ValidationError for any other text."""
    adapter: TypeAdapter[Any] = _selection if issubclass(kind, Selection) else release_json
    made: Released = adapter.validate_json(text)
    return made
