"""Learning-rate schedules: the factor of the learning rate at a step."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence


def constant() -> Callable[[int], float]:
    """Always 1."""
    return lambda step: 1.0


def cosine(total_steps: int) -> Callable[[int], float]:
    """From 1 to 0 along half a cosine, after a short linear rise (the first 2 % of the steps)."""
    rise = max(1, round(0.02 * total_steps))

    def factor(step: int) -> float:
        if step < rise:
            return (step + 1) / rise
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1, total_steps - rise))))

    return factor


def stepwise(milestones: Sequence[int], gamma: float) -> Callable[[int], float]:
    """Times `gamma` from each milestone (a step) on."""
    rising = sorted(milestones)
    return lambda step: gamma ** bisect_right(rising, step)
