"""`docs/faults.md`: what was tried, and the table of what it led to."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.faults.trials import Trial, table

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
MARK = "<!-- made by: python -m tests.faults --write -->"


def write(trials: Iterable[Trial]) -> None:
    """Puts counts and table at the end of the page."""
    result = list(trials)
    counts = Counter(trial.fault for trial in result)
    message = ", ".join(f"{number} × {fault}" for fault, number in counts.items())
    head = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n\nTried: {message}.\n\n{table(result)}\n")
