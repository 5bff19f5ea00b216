"""The figures of a comparison as one picture, a panel for each."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.contestants import OURS, Contestant
from benchmarks.peers.metrics import median
from benchmarks.peers.results import Results

_COLUMNS = 3
_PANEL_INCHES = (4.2, 2.1)
_OURS, _FLOOR, _OTHERS = "#1b6ca8", "#dfe4e8", "#a9b4bd"
_TARGET, _SPREAD = "#c0392b", "#555555"


def draw(results: Results, file: Path) -> bool:
    """Draw an SVG; False when nothing was measured, or matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        return False
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = list(results.rows())
    if not rows:
        return False
    lines = -(-len(rows) // _COLUMNS)
    width, height = _PANEL_INCHES
    with mpl.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(width * _COLUMNS, height * lines), layout="constrained")
        for place, (metric, by_name) in enumerate(rows, 1):
            middles = [median(values) for values in by_name.values()]
            spread = [
                [middle - min(values) for middle, values in zip(middles, by_name.values(), strict=True)],
                [max(values) - middle for middle, values in zip(middles, by_name.values(), strict=True)],
            ]
            colours = [_colour(each) for each in results.contestants if each.name in by_name]
            panel = figure.add_subplot(lines, _COLUMNS, place)
            panel.barh(list(by_name), middles, xerr=spread, color=colours, ecolor=_SPREAD, capsize=2)
            panel.invert_yaxis()
            panel.set_title(metric.title, loc="left")
            panel.set_xlabel(f"{metric.unit} ({'more' if metric.is_more_better else 'less'} is better)".strip())
            if metric.target is not None:
                panel.axvline(metric.target, color=_TARGET, linestyle="--", linewidth=1)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return True


def _colour(contestant: Contestant) -> str:
    if contestant.is_floor:
        return _FLOOR
    return _OURS if contestant.name == OURS else _OTHERS
