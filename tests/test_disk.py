"""Free space is measured where a folder would be, and too little of it is refused."""

import shutil
from pathlib import Path

import pytest

from clare.disk import check_space, free_space, readable_size
from clare.errors import BackboneError


def test_room_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    free = free_space(tmp_path / "not" / "yet")
    assert 0 < free <= shutil.disk_usage(tmp_path).total
    assert free_space(Path("surely-not-here")) > 0


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 MB"), (410_383_692, "410 MB"), (999_400_000, "999 MB"), (2_200_000_000, "2.2 GB")]
)
def test_sizes_are_readable(num_bytes: int, text: str) -> None:
    assert readable_size(num_bytes) == text


def test_too_little_room_is_refused(tmp_path: Path) -> None:
    check_space(tmp_path, 10, lambda path: 10, BackboneError)
    with pytest.raises(BackboneError, match=r"needs 3\.0 GB and 2\.0 GB are free there; free some space"):
        check_space(tmp_path, 3 * 10**9, lambda path: 2 * 10**9, BackboneError)
