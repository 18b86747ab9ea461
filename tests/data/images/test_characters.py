import unicodedata

import numpy as np
import pytest

from unseen.data.images import characters


@pytest.fixture(scope="module")
def group_of() -> dict[str, tuple[int, ...]]:
    return {chr(code): group for group in characters.alike() for code in group}


def test_groups_cover_every_usable_character_once(group_of):
    flat = [code for group in characters.alike() for code in group]
    assert sorted(flat) == list(characters.usable())
    assert len(flat) == len(set(flat)) >= 600
    assert len(characters.alike()) >= 400
    leaders = [group[0] for group in characters.alike()]
    assert leaders == sorted(leaders)
    assert all(list(group) == sorted(group) for group in characters.alike())


@pytest.mark.parametrize(
    "same",
    [
        "A",  # Latin, Greek, Cyrillic
        "B",
        "H",
        "Xx",
        "Oo",  # size alone tells them apart
        "Ss",
        "Cc",
        "Vv",
        "Zz",
        "lI",
        "ÐĐ",
        "3З",
    ],
)
def test_look_alikes_are_one_class(group_of, same):
    assert len({group_of[character] for character in same}) == 1


@pytest.mark.parametrize(
    "different",
    [
        "bdpq",  # mirrored and turned: images are never mirrored and turn by at most 12 degrees
        "69",
        "nu",
        "MW",
        "E",
        "OQ",
        "CG",
        "ce",
        "hn",
        "FE",
        "o",
        "0O",  # a zero is narrower, and dotted in the mono faces
        "17",
        "ЩШ",
        "a",
    ],
)
def test_different_shapes_stay_apart(group_of, different):
    assert len({group_of[character] for character in different}) == len(different)


def test_groups_stay_small():
    assert max(len(group) for group in characters.alike()) <= 14


def test_marks_accents_punctuation_and_blanks_are_left_out(group_of):
    for left_out in "Éñ.,'`|-_/ \u0301\u00a0½ﬁ∂→─":
        assert left_out not in group_of
    for character in group_of:
        assert unicodedata.category(character) in {"Lu", "Ll", "Lo", "Nd", "Sc"}


def test_every_required_face_draws_every_character():
    box = characters.drawing(0x10FFFE, "DejaVuSans")
    for code in characters.usable()[::7]:
        for face in characters.FACES[:12]:
            drawing = characters.drawing(code, face)
            assert np.asarray(drawing).max() > 128
            if face == "DejaVuSans":
                assert drawing.tobytes() != box.tobytes()


def test_drawings_are_cut_to_their_ink():
    pixels = np.asarray(characters.drawing(ord("T"), "DejaVuSerif"))
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert edge.max() > 0


def test_a_blank_has_no_drawing():
    assert characters.drawing(ord(" "), "DejaVuSans") is None


def test_sixteen_faces_exist():
    assert len(set(characters.FACES)) == 16
    for face in characters.FACES:
        assert characters.face_path(face).is_file()
        assert ord("A") in characters.covered(face)
