"""Images that were readable when the data set was opened and no longer are."""

from collections.abc import Callable, Iterable

from unseen.core.files import shown
from unseen.data.images.decode import UnreadableImageError
from unseen.training.events import Event, Unreadable


class UnreadableImages:
    """Called with each error; `tell` hears of each file once.

    A run skips them (`strict = true`: it stops): each file is logged once and counted in the
    result, the same number whether the run was stopped in between or not.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.log: Callable[[Unreadable], None] = lambda event: None

    def __call__(self, error: UnreadableImageError) -> None:
        path = shown(error.path)
        if path not in self.paths:
            self.paths.add(path)
            self.log(Unreadable(path, error.reason))

    def remember(self, events: Iterable[Event]) -> None:
        """What an event log says was told before."""
        self.paths |= {event.path for event in events if isinstance(event, Unreadable)}
