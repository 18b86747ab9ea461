"""What all published studies have in common."""

from unseen.studies.published import study as published_studies


def test_what_was_measured_is_kept_without_pictures_under_the_new_keys() -> None:
    values = {"old": [{"sheet": "data:image/png;base64,AAAA", "columns": 3}], "rho": 0.5}
    found = published_studies._without_pictures(values, {"old": "new"})
    assert found == {"new": [{"sheet": "", "columns": 3}], "rho": 0.5}
