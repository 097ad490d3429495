"""What a benchmark hands back: tables, targets, pictures and raw figures."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Target(_Model):
    """A figure that must reach a limit, or stay below it."""

    what: str
    value: float
    limit: float
    kind: Literal["at least", "at most", "less than"] = "at least"
    unit: str = "x"

    @property
    def is_met(self) -> bool:
        """Whether the value keeps to the limit."""
        if self.kind == "at least":
            return self.value >= self.limit
        if self.kind == "at most":
            return self.value <= self.limit
        return self.value < self.limit

    def __str__(self) -> str:
        return (
            f"{self.what}: {figure(self.value)}{self.unit}, {self.kind} "
            f"{figure(self.limit)}{self.unit} wanted"
        )


class Table(_Model):
    """Rows of text or numbers under a header."""

    header: list[str]
    rows: list[list[str | float | int]]

    def markdown(self) -> str:
        """Numbers to the right, text to the left."""
        numeric = [
            all(isinstance(row[i], int | float) for row in self.rows)
            for i in range(len(self.header))
        ]
        lines = [self.header, ["--:" if each else "---" for each in numeric]]
        lines += [[figure(cell) for cell in row] for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Section(_Model):
    """A part of the performance page."""

    title: str
    # Markdown, table or picture path relative to docs/, in the order of the page.
    parts: list[str | Table]
    targets: list[Target] = []
    data: dict[str, Any] = {}

    def markdown(self) -> str:
        """The section of the page, its targets last."""
        parts = [
            part.markdown() if isinstance(part, Table) else part for part in self.parts
        ]
        if self.targets:
            rows = [
                f"- {'met' if target.is_met else '**missed**'}: {target}"
                for target in self.targets
            ]
            parts.append("\n".join(rows))
        return "\n\n".join([f"## {self.title}", *parts])


def figure(value: str | float) -> str:
    """Three significant digits; counts and text as they are.

    >>> figure(12345.6), figure(0.12345), figure(1024)
    ('12,346', '0.123', '1,024')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
