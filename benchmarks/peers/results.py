"""What came of a comparison: collected as it runs, as JSON, and as a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.contestants import OURS, Contestant
from benchmarks.peers.metrics import Key, Metric, Outcome, Sample, median

_MISSING = "–"


@dataclass(slots=True)
class Results:
    """Figures and verdicts by contestant. ``failures`` are steps that gave none, in words."""

    contestants: Sequence[Contestant]
    metrics: Sequence[Metric]
    samples: dict[tuple[Key, str], list[float]] = field(default_factory=dict)
    verdicts: dict[tuple[str, str], str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, contestant: Contestant, found: Sample | Outcome) -> None:
        """Take in one figure or verdict."""
        if isinstance(found, Sample):
            self.samples.setdefault((found.key, contestant.name), []).append(found.value)
        else:
            self.verdicts[found.case, contestant.name] = found.verdict

    def rows(self) -> Iterator[tuple[Metric, Mapping[str, Sequence[float]]]]:
        """The metrics that were measured, with the samples of each contestant that has some."""
        for metric in self.metrics:
            by_name = {
                each.name: self.samples[metric.key, each.name]
                for each in self.contestants
                if (metric.key, each.name) in self.samples
            }
            if by_name:
                yield metric, by_name

    def to_json(self) -> dict[str, Any]:
        """Everything, with every sample."""
        return {
            "servers": {each.name: {"store": each.store, "is_floor": each.is_floor} for each in self.contestants},
            "figures": [
                {
                    "name": metric.title,
                    "unit": metric.unit,
                    "target": metric.target,
                    "better": "more" if metric.is_more_better else "less",
                    "servers": {
                        name: {
                            "median": median(values),
                            "min": min(values),
                            "max": max(values),
                            "samples": list(values),
                        }
                        for name, values in by_name.items()
                    },
                }
                for metric, by_name in self.rows()
            ],
            "hostile": [
                {"frame": case, "server": name, "verdict": verdict} for (case, name), verdict in self.verdicts.items()
            ],
            "failures": self.failures,
        }

    def to_markdown(self, title: str, conditions: Mapping[str, str]) -> str:
        """A section: figures as medians with their spread; ours beside the floor; hostile frames; failures; stores."""
        names = [each.name for each in self.contestants if not each.is_floor]
        parts = [f"## {title}", "\n".join(f"- {name}: {value}" for name, value in conditions.items())]
        parts.append(_table(["", "target", *names], [_row(*row, names) for row in self.rows()]))
        parts += [self._beside(each.name) for each in self.contestants if each.is_floor]
        if self.verdicts:
            cases = dict.fromkeys(case for case, _ in self.verdicts)
            rows = [[case, *(self.verdicts.get((case, name), _MISSING) for name in names)] for case in cases]
            parts.append(_table(["hostile frame", *names], rows))
        parts.append("\n".join(f"- failed: {failure}" for failure in self.failures))
        parts.append("\n".join(f"- {each.name} stores: {each.store}." for each in self.contestants))
        return "\n\n".join(part for part in parts if part) + "\n"

    def _beside(self, floor: str) -> str:
        """Ours, the floor, and the one divided by the other."""
        head = [f"beside the {floor}", OURS, floor, f"{OURS} / {floor}"]
        rows = [
            [_title(metric), _cell(by_name.get(OURS)), _cell(by_name[floor]), _ratio(by_name, floor)]
            for metric, by_name in self.rows()
            if floor in by_name
        ]
        return _table(head, rows) if rows else ""


def _row(metric: Metric, by_name: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[str]:
    sign = "≥" if metric.is_more_better else "≤"
    target = "" if metric.target is None else f"{sign} {_number(metric.target)}"
    compared = [median(by_name[name]) for name in names if name in by_name]
    best = metric.best(compared) if len(compared) > 1 else None
    return [_title(metric), target, *(_cell(by_name.get(name), best) for name in names)]


def _title(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


def _ratio(by_name: Mapping[str, Sequence[float]], floor: str) -> str:
    if OURS not in by_name or median(by_name[floor]) <= 0:
        return _MISSING
    return f"{median(by_name[OURS]) / median(by_name[floor]):.2f}"


def _cell(values: Sequence[float] | None, best: float | None = None) -> str:
    if not values:
        return _MISSING
    middle = _number(median(values))
    text = f"**{middle}**" if median(values) == best else middle
    if len(values) == 1:
        return text
    return f"{text} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
