"""Where pictures lie: small files of the public formats, written here, and what is said of files that are missing."""

import builtins
import contextlib
import io
import tarfile
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from headlab.interp.errors import RequestError
from headlab.models.images.archives import CLASSES, shelf


def png(value: int, size=(4, 4)) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((*size, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def class_folders(root, splits=("train", "test")):
    for split in splits:
        for number, name in enumerate(("cat", "dog")):
            (root / split / name).mkdir(parents=True)
            for k in range(2):
                (root / split / name / f"{k}.png").write_bytes(png(100 * number + k))
    return root


def records(first: int, count: int = 3) -> bytes:
    rows = np.zeros((count, 3073), np.uint8)
    rows[:, 0] = (first + np.arange(count)) % 10
    rows[:, 1:] = np.arange(3072) % 251
    return rows.tobytes()


def binary(root):
    root.mkdir(parents=True)
    for number in range(1, 6):
        (root / f"data_batch_{number}.bin").write_bytes(records(number))
    (root / "test_batch.bin").write_bytes(records(0))
    return root


def test_class_folders_are_read_from_a_folder_and_from_a_zip(tmp_path):
    folder = class_folders(tmp_path / "pictures")
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder).as_posix())
    for place in (folder, tmp_path / "pictures.zip"):
        found = shelf(place)
        assert (found.name, found.classes) == ("pictures", ("cat", "dog"))
        drawn = found.draw(4, 4)
        assert drawn.targets.tolist() == [0, 0, 1, 1]
        assert (drawn.train[:, 0, 0, 0] * 255).round().tolist() == [0, 1, 100, 101]


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin"])
def test_cifars_binary_files_are_planes_of_red_green_and_blue(tmp_path, inside):
    binary(tmp_path / "data" / inside)
    found = shelf(tmp_path / "data")
    assert found.classes == CLASSES
    assert found.labels["train"].tolist() == [(n + k) % 10 for n in range(1, 6) for k in range(3)]
    pixels = found.read("test", np.array([1]))
    assert pixels.shape == (1, 3, 32, 32)
    assert pixels[0, 1, 2, 3] == (1024 + 2 * 32 + 3) % 251


def test_cifars_binary_archive_is_read_without_unpacking(tmp_path):
    folder = binary(tmp_path / "cifar-10-batches-bin")
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(folder, "cifar-10-batches-bin")
    found = shelf(tmp_path / "cifar-10-binary.tar.gz")
    assert len(found.labels["train"]) == 15
    assert np.array_equal(found.read("train", np.array([4])), shelf(folder).read("train", np.array([4])))


def test_a_missing_batch_is_named(tmp_path):
    binary(tmp_path / "data")
    (tmp_path / "data" / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"lack data_batch_4\.bin"):
        shelf(tmp_path / "data")


def test_a_cut_off_batch_is_named(tmp_path):
    binary(tmp_path / "data")
    (tmp_path / "data" / "data_batch_2.bin").write_bytes(records(1)[:-1])
    with pytest.raises(ValueError, match=r"data_batch_2\.bin .* not a whole number"):
        shelf(tmp_path / "data")


def test_a_label_that_no_class_has_is_refused(tmp_path):
    binary(tmp_path / "data")
    (tmp_path / "data" / "batches.meta.txt").write_text("one\ntwo\n")
    with pytest.raises(ValueError, match="have a label 7; there are 2 names"):
        shelf(tmp_path / "data")


@pytest.mark.parametrize("inside", [".", "cifar-10-batches-py"])
def test_pickled_batches_are_never_unpickled(tmp_path, inside):
    folder = tmp_path / "data" / inside
    folder.mkdir(parents=True)
    (folder / "data_batch_1").write_bytes(b"\x80\x04")
    with pytest.raises(ValueError, match=r"never unpickled here: take the binary archive"):
        shelf(tmp_path / "data")
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(folder, "cifar-10-batches-py")
    with pytest.raises(ValueError, match=r"never unpickled here"):
        shelf(tmp_path / "cifar-10-python.tar.gz")


def test_a_folder_without_a_split_or_a_class_names_it(tmp_path):
    folder = class_folders(tmp_path / "half", splits=("train",))
    with pytest.raises(FileNotFoundError, match="no pictures in test/CLASS/"):
        shelf(folder)
    class_folders(folder, splits=("test",))
    for path in (folder / "test" / "dog").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match="no pictures in test/dog/"):
        shelf(folder)


def test_what_is_no_picture_or_not_square_is_named(tmp_path):
    folder = class_folders(tmp_path / "pictures")
    (folder / "train" / "cat" / "0.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"train/cat/0\.png .* not a picture that can be read"):
        shelf(folder).draw(4, 2)
    (folder / "train" / "cat" / "0.png").write_bytes(png(0, (4, 6)))
    with pytest.raises(ValueError, match=r"train/cat/0\.png .* 6 x 4: pictures must be square"):
        shelf(folder).draw(4, 2)


def test_places_that_hold_no_pictures_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        shelf(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("no archive")
    with pytest.raises(ValueError, match=r"neither a folder, nor a \.zip"):
        shelf(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("missing", "place", "said"), [("PIL", "", "headlab.images."), ("datasets", "datasets:x", "pip install datasets")]
)
def test_a_missing_library_is_one_sentence(tmp_path, monkeypatch, missing, place, said):
    folder = class_folders(tmp_path / "pictures")
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=said):
        shelf(place or folder).draw(4, 2)


def zipped(path, folder):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(folder.rglob("*.png")):
            archive.write(each, each.relative_to(folder).as_posix())
    return path.read_bytes()


def test_damaged_archives_are_one_sentence(tmp_path):
    folder = class_folders(tmp_path / "pictures")
    path = tmp_path / "p.zip"
    whole = zipped(path, folder)
    rng = np.random.default_rng(0)
    for _ in range(150):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), size=3):
            content[at] = rng.integers(256)
        path.write_bytes(content[: rng.integers(len(content) // 2, len(content) + 1)])
        with contextlib.suppress(RequestError):  # some damage changes a colour and nothing else
            shelf(path).draw(4, 4)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"^[^\n]*(is damaged|is neither)[^\n]*$"):
        shelf(path)


def test_a_cut_off_tar_is_one_sentence(tmp_path):
    source = binary(tmp_path / "cifar-10-batches-bin")
    path = tmp_path / "c.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(source, source.name)
    whole = path.read_bytes()
    for length in (len(whole) // 4, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"is damaged|is neither"):
            shelf(path)


def test_pictures_that_claim_to_be_huge_are_refused_before_they_are_unpacked(tmp_path):
    folder = class_folders(tmp_path / "pictures")
    small = bytearray(png(0))
    small[16:24] = (60_000).to_bytes(4, "big") * 2
    small[29:33] = zlib.crc32(small[12:29]).to_bytes(4, "big")
    (folder / "train" / "cat" / "0.png").write_bytes(small)
    with pytest.raises(ValueError, match=r"0\.png in '.*' is (60000 x 60000|not a picture)"):
        shelf(folder).draw(4, 4)
