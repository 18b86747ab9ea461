"""What several processes note in a manifest at the same time is all there."""

import threading
from pathlib import Path

from unseen.training.manifest import Data
from unseen.training.run_folder import RunFolder


def test_nothing_noted_at_the_same_time_is_lost(tmp_path: Path) -> None:
    RunFolder(tmp_path).start_manifest("test", Data(), "hash")
    begin = threading.Barrier(8)

    def read_test_classes(number: int) -> None:
        begin.wait()
        for turn in range(5):
            RunFolder(tmp_path).note_test_read(f"{number}, {turn}", "hash")

    readers = [threading.Thread(target=read_test_classes, args=(n,)) for n in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    reads = RunFolder(tmp_path).read_json("manifest.json")["test_reads"]
    assert len({read["purpose"] for read in reads}) == 40
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", "checksums.json"}
