"""Changes: a pipeline file's content with some entries other than they were."""

from __future__ import annotations

import copy
from typing import Any


def changed_in(content: dict[str, Any], **paths: Any) -> dict[str, Any]:
    """Return a copy in which ``a__b=1`` stands at a, b; ``None`` takes the entry away."""
    new = copy.deepcopy(content)
    for path, value in paths.items():
        *folders, last = path.split("__")
        here = new
        for name in folders:
            here = here[name]
        if value is None:
            del here[last]
        else:
            here[last] = value
    return new
