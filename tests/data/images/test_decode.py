import io
import struct
import zlib

import numpy as np
import pillow_heif
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from unseen.data.images import decode as decoding
from unseen.data.images.decode import SafeImageFile, UnreadableImageError, check, decode


def gradient(width: int, height: int) -> Image.Image:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, 255 - x], axis=-1).astype(np.uint8))


def near(image: Image.Image, expected: Image.Image, tolerance: float = 4) -> bool:
    assert image.mode == "RGB"
    difference = np.asarray(image, dtype=float) - np.asarray(expected, dtype=float)
    return np.abs(difference).mean() < tolerance


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "webp", "tiff", "avif"])
def test_plain_formats(tmp_path, suffix):
    path = tmp_path / f"image.{suffix}"
    gradient(60, 40).save(path, quality=95)
    check(path)
    assert near(decode(path), gradient(60, 40))
    assert near(decode(str(path)), gradient(60, 40))


def test_heic_is_read_where_its_library_is_and_named_where_not(tmp_path, monkeypatch):
    path = tmp_path / "telephone.HEIC"
    pillow_heif.from_pillow(gradient(60, 40)).save(path, quality=95)
    check(path)
    assert near(decode(path), gradient(60, 40))
    assert near(decode(path.read_bytes()), gradient(60, 40))
    monkeypatch.setattr(decoding, "_reads_heif", lambda: False)
    with pytest.raises(UnreadableImageError, match=r"HEIC file needs pillow-heif: .*\[heic\]"):
        check(path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, orientation):
    # What each value says must be done to the stored pixels, from the EXIF standard.
    undo = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_270],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_90],
    }
    expected = gradient(64, 48)
    for step in undo.get(orientation, []):
        expected = expected.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "image.jpg"
    gradient(64, 48).save(path, quality=95, exif=exif)
    image = decode(path)
    assert image.size == expected.size
    assert near(image, expected)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_leaves_the_image(tmp_path):
    path = tmp_path / "image.jpg"
    gradient(64, 48).save(path, quality=95, exif=b"Exif\0\0II*\0" + b"\xff" * 20)
    assert near(decode(path), gradient(64, 48))


def test_palette(tmp_path):
    path = tmp_path / "image.gif"
    gradient(60, 40).quantize(64).save(path)
    assert near(decode(path), gradient(60, 40), tolerance=12)


def test_first_frame_of_an_animation(tmp_path):
    path = tmp_path / "image.gif"
    red, blue = Image.new("RGB", (20, 20), "red"), Image.new("RGB", (20, 20), "blue")
    red.save(path, save_all=True, append_images=[blue])
    assert decode(path).getpixel((5, 5)) == (255, 0, 0)


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_sixteen_bit_grey(tmp_path, kind):
    values = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    path = tmp_path / f"image.{kind}"
    Image.fromarray(values).save(path)
    image = decode(path)
    expected = np.round(values / 257)
    for channel in np.moveaxis(np.asarray(image, dtype=float), -1, 0):
        assert np.abs(channel - expected).max() <= 1


def test_sixteen_bit_color(tmp_path):
    # Pillow writes none, so by hand: one row of a 16-bit RGB PNG.
    row = b"\0" + struct.pack(">9H", 65535, 0, 0, 0, 65535, 0, 32896, 32896, 32896)

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", 3, 1, 16, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    path = tmp_path / "image.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    assert np.asarray(decode(path)).tolist() == [[[255, 0, 0], [0, 255, 0], [128, 128, 128]]]


@pytest.mark.parametrize("top", [1.0, 255.0])
def test_float_grey(tmp_path, top):
    path = tmp_path / "image.tiff"
    Image.fromarray(np.array([[0, top / 2, top]], dtype=np.float32)).save(path)
    assert np.asarray(decode(path))[0, :, 0].tolist() == [0, 128, 255]


def test_cmyk(tmp_path):
    path = tmp_path / "image.jpg"
    Image.new("CMYK", (32, 32), (0, 255, 255, 0)).save(path, quality=95)
    assert near(decode(path), Image.new("RGB", (32, 32), "red"), tolerance=8)


def test_grey_and_bilevel(tmp_path):
    for mode, value in (("L", 77), ("1", 1)):
        path = tmp_path / f"{mode}.png"
        Image.new(mode, (8, 8), value).save(path)
        assert decode(path).getpixel((3, 3)) == ((77,) * 3 if mode == "L" else (255,) * 3)


def test_transparency_is_laid_over_white(tmp_path):
    half = Image.new("RGBA", (2, 1))
    half.putpixel((0, 0), (255, 0, 0, 0))
    half.putpixel((1, 0), (0, 0, 0, 128))
    half.save(tmp_path / "rgba.png")
    assert np.asarray(decode(tmp_path / "rgba.png")).tolist() == [[[255] * 3, [127] * 3]]
    Image.new("LA", (1, 1), (0, 0)).save(tmp_path / "la.png")
    assert decode(tmp_path / "la.png").getpixel((0, 0)) == (255, 255, 255)
    palette = Image.new("P", (1, 1), 0)
    palette.putpalette([10, 20, 30] * 2)
    palette.save(tmp_path / "p.png", transparency=0)
    assert decode(tmp_path / "p.png").getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("short_side", "expected"),
    [(None, (800, 600)), (600, (800, 600)), (301, (800, 600)), (300, (400, 300)), (80, (200, 150))],
)
def test_jpeg_comes_at_the_smallest_useful_scale(tmp_path, short_side, expected):
    path = tmp_path / "image.jpg"
    gradient(800, 600).save(path, quality=95)
    image = decode(path, short_side)
    assert image.size == expected
    assert near(image, gradient(800, 600).resize(expected, Image.Resampling.BOX))


@pytest.mark.parametrize(
    "how",
    [{}, {"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"quality": 100}],
    ids=str,
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [None, (150, 90), (80, 50), (40, 30), (10, 9)], ids=str)
def test_the_straight_way_gives_the_pixels_of_pillow(tmp_path, how, mode, size):
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 20, 3), dtype=np.uint8))
    coarse.resize((331, 205), Image.Resampling.BICUBIC).convert(mode).save(
        tmp_path / "a.jpg", **how
    )
    with SafeImageFile(tmp_path / "a.jpg") as image:
        pixels = image.pixels(size=size)
    with SafeImageFile(tmp_path / "a.jpg") as image:
        np.testing.assert_array_equal(pixels, np.array(image.image(size=size)))
    assert pixels.flags.writeable


@pytest.mark.parametrize("size", [None, (150, 90), (40, 30)], ids=str)
def test_what_only_pillow_forgives_comes_as_pillow_reads_it(tmp_path, size):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (205, 331, 3), dtype=np.uint8)).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(whole[:-2] + b"between" + whole[-2:])  # a warning, no error
    with SafeImageFile(tmp_path / "b.jpg") as image:
        pixels = image.pixels(size=size)
    with SafeImageFile(tmp_path / "a.jpg") as image:
        np.testing.assert_array_equal(pixels, np.array(image.image(size=size)))
    with pytest.raises(ValueError, match="extraneous"):
        simplejpeg.decode_jpeg((tmp_path / "b.jpg").read_bytes())


def test_reduced_and_turned(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "image.jpg"
    gradient(800, 600).save(path, quality=95, exif=exif)
    assert decode(path, 100).size == (150, 200)


def test_other_formats_stay_whole(tmp_path):
    path = tmp_path / "image.png"
    gradient(80, 60).save(path)
    assert decode(path, 10).size == (80, 60)


def test_truncated_jpeg_is_named(tmp_path):
    path = tmp_path / "half.jpg"
    gradient(300, 200).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(
        UnreadableImageError, match=r"half\.jpg: the file ends too early$"
    ) as caught:
        decode(path)
    assert caught.value.path == path
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("function", [check, decode])
def test_what_is_no_image_is_named(tmp_path, function):
    text, empty = tmp_path / "text.jpg", tmp_path / "empty.png"
    text.write_text("not an image at all")
    empty.write_bytes(b"")
    for path, why in ((text, "not an image"), (empty, "no bytes")):
        with pytest.raises(UnreadableImageError, match=f"{path.name}: {why}"):
            function(path)
    with pytest.raises(UnreadableImageError, match=r"gone\.jpg: no such file"):
        function(tmp_path / "gone.jpg")


@pytest.mark.parametrize("function", [check, decode])
def test_bombs_are_refused_by_name(tmp_path, function):
    path = tmp_path / "bomb.png"
    Image.new("L", (30, 30)).save(path)
    function(path, max_pixels=900)
    with pytest.raises(UnreadableImageError, match=r"bomb\.png: 30 x 30 pixels.*limit is 899"):
        function(path, max_pixels=899)


@pytest.mark.parametrize("pixels", [80_000_000, 120_000_000, 400_000_000])
@pytest.mark.parametrize("function", [check, decode])
def test_a_small_file_that_claims_many_pixels(tmp_path, function, pixels):
    """Above our limit; where Pillow warns; where Pillow raises."""
    path = tmp_path / "bomb.bmp"
    Image.new("1", (8, 8)).save(path)
    content = bytearray(path.read_bytes())
    content[18:26] = struct.pack("<ii", pixels // 10_000, 10_000)
    path.write_bytes(content)
    with pytest.raises(UnreadableImageError, match=r"bomb\.bmp.*limit is 67108864"):
        function(path)


def test_a_progressive_file_with_endless_scans_is_refused(tmp_path):
    path = tmp_path / "scans.jpg"
    gradient(64, 48).save(path, progressive=True)
    assert near(decode(path), gradient(64, 48), tolerance=8)
    content = path.read_bytes()
    last = content.rindex(b"\xff\xda")
    path.write_bytes(content[:last] + content[last:-2] * 200 + content[-2:])
    with pytest.raises(UnreadableImageError, match=r"scans\.jpg: \d+ scans, the limit is 100"):
        decode(path)


def test_bytes_are_a_source_too(tmp_path):
    path = tmp_path / "image.png"
    gradient(60, 40).save(path)
    assert near(decode(path.read_bytes()), gradient(60, 40), tolerance=0.1)
    with pytest.raises(UnreadableImageError, match=r"\(in memory\): not an image"):
        decode(b"not an image at all")


def test_formats_that_run_programs_are_not_tried(tmp_path):
    path = tmp_path / "page.jpg"
    gradient(20, 20).save(path, "EPS")
    with pytest.raises(UnreadableImageError, match="not an image"):
        decode(path)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_box_of_a_waiting_image(tmp_path, orientation, suffix):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"image.{suffix}"
    gradient(640, 480).save(path, quality=95, exif=exif)
    upright = np.asarray(decode(path), dtype=float)
    box = (100, 40, 420, 360)
    with SafeImageFile(path) as image:
        assert image.size == upright.shape[1::-1]
        exact = image.pixels(box, (300, 100))
    assert np.abs(exact - upright[40:360, 100:420]).max() == 0
    with SafeImageFile(path) as image:
        reduced = image.pixels(box, (80, 70))
    scale = 4 if suffix == "jpg" else 1
    expected = Image.fromarray(upright.astype(np.uint8)).reduce(scale)
    expected = np.asarray(expected, dtype=float)[
        40 // scale : 360 // scale, 100 // scale : 420 // scale
    ]
    assert reduced.shape == expected.shape
    assert np.abs(reduced - expected).mean() < 3


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    gradient(24, 18).save(buffer, kind)
    return buffer.getvalue()


WHOLE = {kind: encoded(kind) for kind in ("JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP")}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(sorted(WHOLE)), data=st.data())
def test_damage_never_escapes(tmp_path_factory, kind, data):
    content = bytearray(WHOLE[kind])
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    path = tmp_path_factory.getbasetemp() / f"damaged-{kind}"
    path.write_bytes(content[:cut] if data.draw(st.booleans()) else content)
    try:
        assert decode(path, short_side=10).mode == "RGB"
    except UnreadableImageError as error:
        assert str(path) in str(error)  # noqa: PT017  both ways out are right
