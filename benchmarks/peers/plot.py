"""The figures of a comparison as one picture, a panel for each."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.metrics import median
from benchmarks.peers.results import Results

_COLUMNS = 3
_PANEL_INCHES = (4.2, 2.1)
_OURS, _OTHERS = "#1b6ca8", "#a9b4bd"


def draw(results: Results, file: Path) -> None:
    """Write the picture, unless nothing was measured; its type is that of the name, such as ``.svg``.

    Raises:
        ImportError: matplotlib is not installed.
    """
    rows = list(results.rows())
    import matplotlib  # noqa: PLC0415  # an extra, and slow to load

    matplotlib.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    if not rows:
        return
    lines = -(-len(rows) // _COLUMNS)
    with pyplot.rc_context({"svg.fonttype": "none", "font.size": 8, "svg.hashsalt": "peers"}):
        figure, panels = pyplot.subplots(
            lines,
            _COLUMNS,
            figsize=(_PANEL_INCHES[0] * _COLUMNS, _PANEL_INCHES[1] * lines),
            squeeze=False,
            layout="constrained",
        )
        for panel in panels.flat[len(rows) :]:
            panel.set_visible(False)
        for panel, (metric, by_name) in zip(panels.flat, rows, strict=False):
            middles = [median(values) for values in by_name.values()]
            spread = [
                [middle - min(values) for middle, values in zip(middles, by_name.values(), strict=True)],
                [max(values) - middle for middle, values in zip(middles, by_name.values(), strict=True)],
            ]
            colours = [_OURS if name == results.contestants[0].name else _OTHERS for name in by_name]
            panel.barh(list(by_name), middles, xerr=spread, color=colours, ecolor="#555555", capsize=2)
            panel.invert_yaxis()
            panel.set_title(metric.title, loc="left")
            panel.set_xlabel(f"{metric.unit} ({'more' if metric.is_more_better else 'less'} is better)")
            if metric.target is not None:
                panel.axvline(metric.target, color="#c0392b", linestyle="--", linewidth=1)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
        pyplot.close(figure)
