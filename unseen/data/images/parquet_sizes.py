"""What a Parquet file takes in memory, by its own word: its footer, and the headers of its pages,
which say more where somebody lied in the footer.

Numbers take their width, however they are packed. A text of a dictionary stands once in the file
and in every row that has it: where each row could have the longest one and that is too much, the
texts that rows have are summed up, from the dictionary's codes alone.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from unseen.core import read_limits

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_TEXT = "BYTE_ARRAY"
_OFFSET = 4  # bytes that tell where a text ends
_HEADER = 1 << 16  # bytes of a page's header at most
_DICTIONARY = 2  # the type of a page
_STRUCT, _BINARY, _NUMBERS = 12, 8, (4, 5, 6)  # kinds of Thrift's values
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of others


def check(stream: Any, file: Any, name: object, whole: bool) -> None:
    """Refuses what is too large. stream: of the file's bytes. file: pyarrow's, of the same. whole:
    all rows are in memory at once, not one group after the other."""
    footer = file.metadata
    size = stream.seek(0, 2)
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    sizes = [
        {column.path_in_schema: _sizes(stream, column) for column in _columns(group)}
        for group in groups
    ]
    worst = sum(least + more for columns in sizes for least, more in columns.values())
    is_small = worst <= read_limits.limit(size)[0]  # whatever text each row has
    total = 0
    for number, columns in enumerate(sizes):
        total += read_limits.ROW * groups[number].num_rows
        texts = [path for path, (_, more) in columns.items() if more]
        result = iter(()) if is_small or not texts else _lengths(stream, number, texts)
        declared = 0
        for num_bytes in chain((least for least, _ in columns.values()), result):
            declared, total = declared + num_bytes, total + num_bytes
            read_limits.require(name, declared, size)
            read_limits.require(name, total, size, in_memory=whole)


def _columns(group: Any) -> list[Any]:
    return [group.column(place) for place in range(group.num_columns)]


def _sizes(stream: Any, column: Any) -> tuple[int, int]:
    """What a column of a group takes without the texts of its dictionary, and what these take
    where every row has the longest."""
    starts = (column.dictionary_page_offset, column.data_page_offset)
    start = min(place for place in starts if place)
    pages = list(_pages(stream, start, start + column.total_compressed_size))
    plain = max(column.total_uncompressed_size, sum(size for _, size in pages))
    if column.physical_type != _TEXT:
        width = _WIDTHS.get(column.physical_type, 0)
        return max(plain, width * column.num_values), 0
    least = plain + _OFFSET * column.num_values
    words = max((size for kind, size in pages if kind == _DICTIONARY), default=0)
    return least, words * column.num_values


def _lengths(stream: Any, group: int, columns: list[str]) -> Iterator[int]:
    """The bytes of the texts of some columns, batch by batch; they are not put together."""
    from pyarrow import compute, parquet  # noqa: PLC0415 - an extra

    stream.seek(0)
    file = parquet.ParquetFile(stream, read_dictionary=columns)
    for batch in file.iter_batches(row_groups=[group], columns=columns):
        for array in batch.columns:
            for leaf in _leaves(array):
                lengths = compute.binary_length(leaf.dictionary)
                yield compute.sum(lengths.take(leaf.indices)).as_py() or 0


def _leaves(array: Any) -> Iterator[Any]:
    """The columns of a dictionary in structs and lists."""
    if hasattr(array, "dictionary"):
        yield array
    elif hasattr(array, "flatten") and array.type.num_fields:
        inner = array.flatten()
        for each in inner if isinstance(inner, list) else [inner]:
            yield from _leaves(each)


def _pages(stream: Any, place: int, end: int) -> Iterator[tuple[int, int]]:
    """The type of each page and its size when it is unpacked."""
    while place < end:
        stream.seek(place)
        head = _Thrift(stream.read(min(_HEADER, end - place)))
        try:
            kind, unpacked, packed = head.numbers()
        except (IndexError, KeyError) as error:
            raise OSError(f"a page at byte {place} has no header that can be read") from error
        if packed < 0 or unpacked < 0:
            raise OSError(f"a page at byte {place} has a negative size")
        yield kind, unpacked
        place += head.at + packed


class _Thrift:
    """Reads a page's header, a struct of Thrift's compact protocol."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def numbers(self) -> tuple[int, int, int]:
        """The first three fields: type, size unpacked, size packed."""
        result = self._struct()
        return result[1], result[2], result[3]

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def _struct(self, depth: int = 0) -> dict[int, int]:
        result, field = {}, 0
        while byte := self._byte():
            delta, kind = byte >> 4, byte & 15
            field = field + delta if delta else _signed(self._varint())
            result[field] = self._value(kind, depth)
        return result

    def _value(self, kind: int, depth: int) -> int:
        """A number; of everything else, nothing, behind which reading goes on."""
        if kind in _FIXED:
            self.at += _FIXED[kind]
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind == _STRUCT and depth < 8:
            self._struct(depth + 1)
        elif kind in _NUMBERS:
            return _signed(self._varint())
        else:
            raise KeyError(kind)  # lists and maps are in no page's header
        return 0


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)
