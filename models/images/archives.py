"""Where pictures lie: class folders (also in a zip), CIFAR-10's public binary files, or the `datasets` library.

CIFAR-10's Python archive is a pickle, which runs whatever code is in it: it is not read, and the message says which
archive to take instead.
"""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from headlab.interp.errors import MissingFile, RequestError
from headlab.models.images.pictures import SPLITS, Shelf

HUB = "datasets:"
SIDE, CHANNELS = 32, 3
RECORD = 1 + CHANNELS * SIDE * SIDE
BATCHES = {"train": tuple(f"data_batch_{n}.bin" for n in range(1, 6)), "test": ("test_batch.bin",)}
LABELS = "batches.meta.txt"
MOST_BYTES = 64 * 2**20  # of one compressed picture
MOST_SIDE = 4096  # pixels of a picture's side
# What zipfile, tarfile and their decompressors raise on damage; NotImplementedError and RuntimeError: unknown methods,
# encrypted members.
DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
    struct.error,
)
ENDINGS = (".jpg", ".jpeg", ".png")
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def shelf(place: str | Path) -> Shelf:
    """The pictures at `place`, not read yet.

    A folder or a .zip with `train/CLASS/*.jpg` and `test/CLASS/*.jpg` (or .png); a folder, or the .tar.gz itself, of
    CIFAR-10's binary archive; or `datasets:NAME` for a data set of the `datasets` library with the splits train and
    test. Raises FileNotFoundError naming what is missing, and ValueError for a place that holds no pictures, for
    pickled batches, and where a library is missing.
    """
    if str(place).startswith(HUB):
        return _hub(str(place)[len(HUB) :])
    path = Path(place)
    if not path.exists():
        raise MissingFile(f"there are no pictures at '{path}': no such file or folder")
    if path.is_dir():
        return _folder(path)
    try:
        if zipfile.is_zipfile(path):
            archive = zipfile.ZipFile(path)
            return _class_folders(path, archive.namelist(), lambda name: _member(archive, name, path))
        if tarfile.is_tarfile(path):
            return _tar(path)
    except RequestError:
        raise
    except DAMAGE as error:
        raise RequestError(f"the archive '{path}' is damaged: {_reason(error)}") from None
    raise RequestError(f"'{path}' is neither a folder, nor a .zip of class folders, nor CIFAR-10's binary .tar.gz")


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """One file of a .zip. Raises RequestError where it is damaged, encrypted, or larger than a picture can be."""
    try:
        size = archive.getinfo(name).file_size
        if size > MOST_BYTES:
            raise RequestError(f"{name} in '{path}' has {size} bytes unpacked, more than the {MOST_BYTES} of a picture")
        return archive.read(name)
    except DAMAGE as error:
        raise RequestError(f"{name} in '{path}' is damaged: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__


def _folder(path: Path) -> Shelf:
    for place in (path, path / "cifar-10-batches-bin"):
        found = {each.name for each in place.iterdir()} if place.is_dir() else set()
        if any(name in found for names in BATCHES.values() for name in names):
            return _binary(str(place), found, lambda name, place=place: (place / name).read_bytes())
        if place != path:
            break
    if "data_batch_1" in found or (path / "cifar-10-batches-py").is_dir() or (path / "data_batch_1").is_file():
        raise RequestError(_pickled(path))
    names = [each.relative_to(path).as_posix() for split in SPLITS for each in sorted((path / split).glob("*/*"))]
    return _class_folders(path, names, lambda name: (path / name).read_bytes())


def _pickled(path: Path) -> str:
    return (
        f"'{path}' holds CIFAR-10's Python archive, whose batches are pickles and are never unpickled here: "
        "take the binary archive, cifar-10-binary.tar.gz"
    )


def _tar(path: Path) -> Shelf:
    with tarfile.open(path) as archive:
        members = {PurePosixPath(each.name).name: each.name for each in archive.getmembers() if each.isfile()}
    if "data_batch_1" in members:
        raise RequestError(_pickled(path))

    def read(name: str) -> bytes:
        with tarfile.open(path) as archive:
            file = archive.extractfile(members[name])
            return file.read() if file else b""

    return _binary(str(path), set(members), read)


def _binary(place: str, found: set[str], read: Callable[[str], bytes]) -> Shelf:
    """Records of one label byte and three planes of 32 x 32 bytes, in five batches and a test batch."""
    batches = {}
    for split, names in BATCHES.items():
        for name in names:
            if name not in found:
                raise MissingFile(f"CIFAR-10's binary files at '{place}' lack {name}")
        parts = []
        for name in names:
            data = np.frombuffer(read(name), dtype=np.uint8)
            if not len(data) or len(data) % RECORD:
                raise RequestError(
                    f"{name} at '{place}' has {len(data)} bytes, not a whole number of {RECORD}-byte records"
                )
            parts.append(data.reshape(-1, RECORD))
        batches[split] = np.concatenate(parts)
    classes = tuple(read(LABELS).decode().split()) if LABELS in found else CLASSES
    largest = max(int(records[:, 0].max()) for records in batches.values())
    if largest >= len(classes):
        raise RequestError(
            f"CIFAR-10's binary files at '{place}' have a label {largest}; there are {len(classes)} names"
        )

    def pixels(split: str, rows: np.ndarray) -> np.ndarray:
        return batches[split][rows, 1:].reshape(-1, CHANNELS, SIDE, SIDE)

    labels = {split: records[:, 0].astype(np.int64) for split, records in batches.items()}
    return Shelf("CIFAR-10", classes, labels, pixels)


def _class_folders(path: Path, names: Sequence[str], read: Callable[[str], bytes]) -> Shelf:
    pictures = [name for name in sorted(names) if name.lower().endswith(ENDINGS) and len(name.split("/")) == 3]
    by_split = {split: [name for name in pictures if name.startswith(split + "/")] for split in SPLITS}
    for split, found in by_split.items():
        if not found:
            raise MissingFile(
                f"'{path}' has no pictures in {split}/CLASS/: it takes train/CLASS/*.jpg and test/CLASS/*.jpg, or the "
                "files of CIFAR-10's binary archive (data_batch_1.bin ...)"
            )
    classes = tuple(sorted({name.split("/")[1] for name in pictures}))
    for split, found in by_split.items():
        lost = set(classes) - {name.split("/")[1] for name in found}
        if lost:
            raise MissingFile(f"'{path}' has no pictures in {split}/{min(lost)}/")
    labels = {s: np.array([classes.index(name.split("/")[1]) for name in found]) for s, found in by_split.items()}

    def pixels(split: str, rows: np.ndarray) -> np.ndarray:
        drawn = [_decoded(read(by_split[split][row]), by_split[split][row], path) for row in rows]
        sides = sorted({picture.shape[-1] for picture in drawn})
        if len(sides) > 1:
            raise RequestError(
                f"the pictures in '{path}' have sides of {sides[0]} to {sides[-1]} pixels: scale them alike"
            )
        return np.stack(drawn)

    return Shelf(path.stem, classes, labels, pixels)


def _decoded(data: bytes, name: str, path: Path) -> np.ndarray:
    """A compressed picture as bytes [channel, row, column]; `path` is where it lies, for the message."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise RequestError("pictures in .jpg and .png need Pillow: pip install 'headlab[images]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large pictures, which are refused here
            image = Image.open(io.BytesIO(data))
        width, height = image.size
        if width != height or width > MOST_SIDE:
            raise RequestError(
                f"{name} in '{path}' is {width} x {height}: pictures must be square, of {MOST_SIDE} pixels or less"
            )
        picture = np.asarray(image.convert("RGB"))
    except RequestError:
        raise
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError, *DAMAGE):
        raise RequestError(f"{name} in '{path}' is not a picture that can be read") from None
    return picture.transpose(2, 0, 1)


def _hub(name: str) -> Shelf:
    """A data set of the `datasets` library, by its name there or by a folder that it can read."""
    try:
        import datasets
    except ImportError:
        raise RequestError(f"'{HUB}{name}' needs the library datasets: pip install datasets") from None
    try:
        loaded: Any = datasets.load_dataset(name)
    except Exception as error:
        raise RequestError(f"datasets cannot load '{name}': {str(error).splitlines()[0]}") from None
    for split in SPLITS:
        if split not in loaded:
            raise RequestError(f"'{name}' has no split '{split}': it has {', '.join(map(str, loaded))}")
    columns = loaded["train"].column_names
    picture = next((column for column in ("img", "image") if column in columns), None)
    label = next((column for column in ("label", "fine_label") if column in columns), None)
    if picture is None or label is None:
        raise RequestError(f"'{name}' has no columns image (or img) and label: it has {', '.join(columns)}")
    labels = {split: np.array(loaded[split][label]) for split in SPLITS}
    feature = loaded["train"].features[label]
    classes = tuple(getattr(feature, "names", None) or map(str, np.unique(labels["train"])))

    def pixels(split: str, rows: np.ndarray) -> np.ndarray:
        read = loaded[split].with_format(None)
        return np.stack([np.asarray(read[int(row)][picture].convert("RGB")).transpose(2, 0, 1) for row in rows])

    return Shelf(name, classes, labels, pixels)
