"""Pictures that could be read when the data set was made and cannot be read any more.

A run goes on without them (`strict = true`: it stops): each file is told once, stands in the
journal, and is counted in the result, the same number whether the run was stopped in between or
not.
"""

from collections.abc import Callable, Iterable

from unseen.data.pictures.decode import UnreadablePictureError
from unseen.files import shown
from unseen.training.events import Event, Unreadable


class UnreadablePictures:
    """Called with each error; `tell` hears of each file once."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.tell: Callable[[Unreadable], None] = lambda event: None

    def __call__(self, error: UnreadablePictureError) -> None:
        path = shown(error.path)
        if path not in self.paths:
            self.paths.add(path)
            self.tell(Unreadable(path, error.reason))

    def remember(self, events: Iterable[Event]) -> None:
        """What a journal says was told before."""
        self.paths |= {event.path for event in events if isinstance(event, Unreadable)}
