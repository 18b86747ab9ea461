"""Why a setting has its value."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reason:
    """Why `resolve` or a time budget chose a value, printed as `key = value: why`.

    Args:
        key: The setting, with its table: `lr`, `head.start`.
        value: Its value; "" where `why` says it all.
        why: A short sentence.

    Example:
        >>> print(Reason("workers", 0, "there is nothing to prepare"))
        workers = 0: there is nothing to prepare
        >>> print(Reason("speed", "", "40 images/s embedded at 224 px"))
        speed: 40 images/s embedded at 224 px
    """

    key: str
    value: Any
    why: str

    def __str__(self) -> str:
        value = f"{self.value:g}" if isinstance(self.value, float) else self.value
        value = "none" if value is None else value
        return f"{self.key}: {self.why}" if value == "" else f"{self.key} = {value}: {self.why}"
