"""What the attacks share."""

import socket
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def host() -> Iterator[str]:
    """An address of this machine to which nobody may connect."""
    calls: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        ended = threading.Event()

        def listen() -> None:
            while not ended.is_set():
                try:
                    connection, caller = server.accept()
                except TimeoutError:
                    continue
                calls.append(caller)
                connection.close()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join()
    assert not calls, "somebody connected"
