"""Files of a form (`curl -F file=@image.jpg`), taken from a body that has arrived whole: nothing
of it is written to the disk."""

from python_multipart.multipart import MultipartParser, parse_options_header


def files_in(body: bytes, content_type: str, most: int) -> list[bytes]:
    """Contents of the parts with a file name, whatever their field is called; a ValueError for more
    than `most` parts, and for what is no form."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise ValueError("its parts have no boundary")
    result = _Files(most)
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": result.begin,
            "on_header_field": result.field,
            "on_header_value": result.value,
            "on_part_data": result.data,
            "on_part_end": result.end,
        },
    )
    parser.write(body)
    parser.finalize()
    return result.files


class _Files:
    """What a parser tells, part by part; it may tell a header, and content, in several pieces."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self.files: list[bytes] = []

    def begin(self) -> None:
        self.count += 1
        if self.count > self.most:
            raise ValueError(f"at most {self.most} parts")
        self.head, self.content, self.in_value = b"", bytearray(), True

    def field(self, data: bytes, start: int, end: int) -> None:
        self.head += (b"\n" if self.in_value else b"") + data[start:end].lower()
        self.in_value = False

    def value(self, data: bytes, start: int, end: int) -> None:
        self.head += (b"" if self.in_value else b": ") + data[start:end]
        self.in_value = True

    def data(self, data: bytes, start: int, end: int) -> None:
        self.content += data[start:end]

    def end(self) -> None:
        key = b"\ncontent-disposition: "
        disposition = self.head.partition(key)[2].partition(b"\n")[0]
        if b"filename" in parse_options_header(disposition)[1]:
            self.files.append(bytes(self.content))
