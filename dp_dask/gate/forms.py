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
    # What is not asked for is left out: a request of epsilon that protects a record has the digest that it always had.
    unused = set() if request.unit.is_person else {"unit"}
    if isinstance(request, SelectionRequest):
        return _selection_request.dump_json(request, exclude=unused)
    return request_json.dump_json(request, exclude=unused | {"epsilon" if request.loss.unit is Unit.RHO else "rho"})


def written(release: Release | Selection) -> str:
    """Return a release as JSON; what is at its default leaves the text what it was before there was such a field."""
    unused: dict[str, Any] = {} if release.request.unit.is_person else {"request": {"unit"}}
    unused |= {} if release.snapshot else {"snapshot": True}
    adapter: TypeAdapter[Any] = _selection if isinstance(release, Selection) else release_json
    return adapter.dump_json(release, exclude=unused).decode()


def parsed(text: str, kind: type[Released]) -> Released:
    """Read a release of this kind; raises pydantic's ValidationError for any other text."""
    adapter: TypeAdapter[Any] = _selection if issubclass(kind, Selection) else release_json
    made: Released = adapter.validate_json(text)
    return made
