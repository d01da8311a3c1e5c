"""Selection picture: how likely noise is to change the answer to a distance, by how far that is from the threshold."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from dp_dask.core.selection import SparseVector
from dp_dask.public.selection_plan import flips
from dp_dask.selection_forecast import SelectionForecast

__all__ = ["draw_flips"]

REACH, POINTS = 5.0, 200  # noise scales of a distance; points of a line


def draw_flips(forecasts: Sequence[SelectionForecast]) -> str:
    """Return an SVG: one panel a sparse vector, the lines at several c, as in figure 1 of Park, Vinaroz & Jitkrittum (2021).

    Where noise is one-sided the false rejections are dashed. Raises ValueError where no forecast is of a sparse vector.
    """
    import matplotlib as mpl  # noqa: PLC0415  (half a second of imports)
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = [(f, f.plan.spec) for f in forecasts if isinstance(f.plan.spec, SparseVector)]
    if not shown:
        msg = "no measurement is of method svt, whose flips could be drawn"
        raise ValueError(msg)
    mpl.rcParams["svg.hashsalt"] = "flips"
    figure = Figure(figsize=(6, 3 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), squeeze=False)[:, 0]
    for axes, (f, own) in zip(panels, shown, strict=True):
        like = {each.spec.c: each.spec for each in f.others if each.spec.epsilon == own.epsilon}
        for i, (c, spec) in enumerate(sorted(like.items())):
            a = np.linspace(0, REACH * own.nominal_scales[1], POINTS)
            accepted, rejected = flips(spec, a)
            axes.plot(a * f.step, accepted, color=f"C{i}", label=f"c = {c}")
            if spec.is_one_sided:
                axes.plot(a * f.step, rejected, color=f"C{i}", linestyle="--")
        axes.set_title(f"{f.measurement}: epsilon {own.epsilon}, {own.variant}", loc="left")
        axes.set_xlabel("distance from the threshold")
        axes.set_ylabel("probability of a flip")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
