"""One result as files: JSON for programs, a Markdown table for people, plots beside it. Knows nothing of measuring."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONDITIONS = ("command", "machine", "disk", "versions", "commit")


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over one quantity. ``name`` is that of its file, beside the name of the program."""

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    log: bool = True
    """Whether both axes are logarithmic: a power law is a straight line then, and its slope the exponent."""

    def to_json(self) -> dict[str, Any]:
        lines = {name: [list(point) for point in points] for name, points in self.series.items()}
        return {"name": self.name, "title": self.title, "x": self.x, "y": self.y, "log": self.log, "series": lines}


@dataclass(frozen=True, slots=True)
class Table:
    """What many things have in common: a row for each, and in each column the samples of one quantity."""

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Sequence[float]]]
    """By the name of each row, its cells from left to right; one without samples was not measured."""

    def to_json(self) -> dict[str, Any]:
        rows = {name: [_summary(cell) for cell in cells] for name, cells in self.rows.items()}
        return {"title": self.title, "columns": list(self.columns), "rows": rows}


def _summary(samples: Sequence[float]) -> dict[str, Any] | None:
    if not samples:
        return None
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "samples": len(samples)}


def rows_of(table: Mapping[str, Any]) -> list[list[str]]:
    """The rows of a table as it is in the JSON: the median, with the least and the greatest where they differ."""

    def shown(cell: Mapping[str, Any] | None) -> str:
        if cell is None:
            return "-"
        spread = f" ({number(cell['min'])} to {number(cell['max'])})" if cell["min"] != cell["max"] else ""
        return number(cell["median"]) + spread

    return [[name, *map(shown, cells)] for name, cells in table["rows"].items()]


def write_result(folder: Path, program: str, result: Mapping[str, Any]) -> list[Path]:
    """Write ``<program>.json``, ``<program>.md`` and an SVG file for each plot; return what was written.

    Without matplotlib there are no plots; the points stand in the JSON all the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for plot in result["plots"]:
        file = folder / f"{program}-{plot['name']}.svg"
        if draw(plot, file):
            drawn.append(file)
    as_json = folder / f"{program}.json"
    as_json.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [as_json, write_markdown(folder, program, result), *drawn]


def write_markdown(folder: Path, program: str, result: Mapping[str, Any]) -> Path:
    """Write ``<program>.md`` with the pictures of it that are in ``folder``; return what was written."""
    pictures = [f"{program}-{plot['name']}.svg" for plot in result["plots"]]
    target = folder / f"{program}.md"
    there = [picture for picture in pictures if (folder / picture).is_file()]
    target.write_text(to_markdown(result, there), encoding="utf-8")
    return target


def to_markdown(result: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """The result as a Markdown document; ``pictures`` are addresses of images.

    Where there are tables they hold the figures, and of these only such as have a target are listed by themselves.
    """
    lines = [f"# {result['title']}", ""]
    lines += [f"- {name}: {cell(result[name])}" for name in CONDITIONS]
    figures = [each for each in result["figures"] if each["at_most"] is not None or not result.get("tables")]
    if figures:
        lines += ["", "| what | median | least to greatest | n | target | |", "|---|---:|---:|---:|---:|---|"]
    for figure in figures:
        spread = f"{number(figure['min'])} to {number(figure['max'])}" if figure["samples"] > 1 else ""
        target = "" if figure["at_most"] is None else f"at most {figure['at_most']:g}"
        verdict = {None: "", True: "reached", False: "**not reached**"}[figure["reached"]]
        median = f"{number(figure['median'])} {figure['unit']}".rstrip()
        cells = (figure["name"], median, spread, str(figure["samples"]), target, verdict)
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    lines += ["", *(f"- {fact}" for fact in result["facts"])]
    for table in result.get("tables", []):
        lines += ["", f"**{table['title']}**", "", "| " + " | ".join(["", *table["columns"]]) + " |"]
        lines += ["|---|" + "---:|" * len(table["columns"])]
        lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows_of(table)]
    lines += [f"\n![{picture}]({picture})" for picture in pictures]
    return "\n".join(lines).rstrip() + "\n"


def draw(plot: Mapping[str, Any], file: Path) -> bool:
    """Draw a plot as SVG; False when matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - one extra needs it, and what is measured must not wait for it
    except ImportError:
        return False
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": plot["name"], "svg.fonttype": "none"}):
        picture = Picture(figsize=(7, 4.5), layout="constrained")
        axes = picture.subplots()
        for name, points in plot["series"].items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=name)
        if plot["log"]:
            axes.set_xscale("log")
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set(title=plot["title"], xlabel=plot["x"], ylabel=plot["y"])
        axes.grid(visible=True, which="both", alpha=0.25)
        axes.legend(fontsize="small")
        picture.savefig(file, format="svg", metadata={"Date": None})
    return True


def number(value: float) -> str:
    """Three digits or so, which is what a measurement is worth."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 20:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def cell(text: str) -> str:
    """Text that does not end its cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
