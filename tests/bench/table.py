"""Rows of claims: what was measured, against what, and the bound."""

from __future__ import annotations


class Table:
    def __init__(self) -> None:
        self.missed = 0
        print(f"{'claim':<52} {'measured':>12} {'bound':>9}", flush=True)

    def row(
        self,
        claim: str,
        value: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        unit: str = "×",
    ) -> None:
        """One claim; `unit` × is a ratio."""
        bound = at_most if at_most is not None else at_least
        good = value <= bound if at_most is not None else value >= bound
        sign = "≤" if at_most is not None else "≥"
        self.missed += not good
        mark = "" if good else "  MISSED"
        print(f"{claim:<52} {value:>10.2f} {unit} {sign} {bound:g}{mark}", flush=True)

    def note(self, text: str) -> None:
        """A fact without a bound."""
        print(f"  {text}", flush=True)

    def close(self) -> int:
        print(f"{self.missed} missed" if self.missed else "all claims hold", flush=True)
        return 1 if self.missed else 0
