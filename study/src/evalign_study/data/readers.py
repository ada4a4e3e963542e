"""Readers of files: one per format, for the packed files and for the public originals."""

import gzip
import io
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from evalign_study.data.cards import VOID, Card

if TYPE_CHECKING:
    from PIL import Image

# NNN.class/NNN_NNNN.jpg; the archive holds a few other files.
PHOTOGRAPH = re.compile(r"(.*/)?\d{3}\.[^/]+/\d{3}_\d{4}\.jpg")
PARTS = ("train", "test")  # the order of the files, where there are two


class Content(NamedTuple):
    """A file's content.

    Args:
        X: features, images or texts, as in the file.
        label: the name of the class; or numbers as `Dataset.y` has them.
        split: "train", "validation" or "test", where the publisher says so.
        groups: a number per row; rows of one group stay on one side of a split. None: equal rows
            do.
        classes: their names, where labels are numbers and only the file names them.
    """

    X: Any
    label: np.ndarray
    split: np.ndarray | None = None
    groups: np.ndarray | None = None
    classes: tuple[str, ...] = ()


def read(card: Card, paths: Sequence[Path], *, public: bool) -> Content:
    """Read the packed files, or the originals, in the format that the card gives."""
    options = dict(card.read) if public else {}
    return READERS[(public and card.public_format) or card.format](card, paths, **options)


def csv(card: Card, paths: Sequence[Path], **options: Any) -> Content:
    """Read one table, or two: the first for training, the second for the test."""
    frames = [pd.read_csv(path, keep_default_na=False, **options) for path in paths]
    if len(frames) > 1:
        frames = [frame.assign(split=part) for frame, part in zip(frames, PARTS, strict=True)]
    frame = pd.concat(frames, ignore_index=True)
    label = frame.pop(card.label).astype(str).str.rstrip(".")  # labels of adult.test end with a dot
    split = frame.pop("split").to_numpy(object) if "split" in frame else None
    X = frame.drop(columns=list(card.drop))
    if card.format == "npz":  # the packed file holds float32, so the original must give the same
        X = X.to_numpy(np.float32)
    return Content(X, label.to_numpy(object), split)


def npz(card: Card, paths: Sequence[Path]) -> Content:
    (stored,) = map(np.load, paths)
    y = stored["y"]
    label = stored["class_names"][y] if "class_names" in stored else y.astype(int).astype(str)
    return Content(stored["X"], label)


def pairs(card: Card, paths: Sequence[Path]) -> Content:
    """Read CocktailParty's pairs: 7 columns of ids, then the features. A frame is a group."""
    (frame,) = (pd.read_csv(path, dtype={"stamp": str}) for path in paths)
    X = frame.iloc[:, 7:-1].drop(columns=["dyad1_y", "dyad2_y"])  # 0 by construction
    label = np.where(frame["target"] == 1, "same group", "apart")
    return Content(X, label, groups=pd.factorize(frame["stamp"])[0])


def frames(card: Card, paths: Sequence[Path]) -> Content:
    """Read CocktailParty's frames: x, y, cos, sin of each person; a label for each pair i < j."""
    (stored,) = map(np.load, paths)
    theta, group = stored["theta"], stored["group"]
    X = np.dstack([stored["xy"], np.cos(theta), np.sin(theta)])
    i, j = np.triu_indices(group.shape[1], 1)
    return Content(X, np.where(group[:, i] == group[:, j], "same group", "apart"))


def cifar10(card: Card, paths: Sequence[Path]) -> Content:
    """Read images stored as differences between neighbours, and of red and blue from green."""
    images, labels, split = [], [], []
    for path in paths:
        with np.load(path) as stored:
            planes, y = stored["planes"], stored["y"]
        planes = planes.cumsum(2, dtype=np.uint8).cumsum(3, dtype=np.uint8)
        images.append(np.stack([planes[0] + planes[1], planes[1], planes[2] + planes[1]], -1))
        labels.append(np.array(card.classes)[y])
        split += ["test" if "test" in path.name else "train"] * len(y)
    return Content(np.concatenate(images), np.concatenate(labels), np.array(split, object))


def cifar10_binary(card: Card, paths: Sequence[Path]) -> Content:
    """Read the publisher's archive: a byte for the label, then the red, green and blue planes."""
    (path,) = paths
    with tarfile.open(path) as archive:
        plain = [member for member in archive if member.isfile()]
        files = {Path(member.name).name: archive.extractfile(member) for member in plain}
        stored = {name: file.read() for name, file in sorted(files.items()) if file}
    batches = [name for name in stored if name.endswith(".bin")]  # sorted: test_batch is last
    rows = [np.frombuffer(stored[name], np.uint8).reshape(-1, 1 + 3 * 32 * 32) for name in batches]
    split = np.repeat([PARTS["test" in name] for name in batches], [len(part) for part in rows])
    every = np.concatenate(rows)
    X = every[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    label = np.array(card.classes)[every[:, 0]]
    return Content(np.ascontiguousarray(X), label, split.astype(object))


def photographs(card: Card, paths: Sequence[Path]) -> Content:
    """Read an archive with a folder for each class; cut the photographs' middles to one size."""
    from PIL import Image, ImageOps

    (path,) = paths
    height, width, _ = card.shape
    images, labels = [], []
    with tarfile.open(path) as archive:
        members = [member for member in archive if PHOTOGRAPH.fullmatch(member.name)]
        for member in sorted(members, key=lambda member: member.name):
            file = archive.extractfile(member)
            assert file is not None
            with Image.open(file) as image:
                # Decode no more detail than the small image keeps.
                image.draft("RGB", (width, height))
                images.append(np.asarray(ImageOps.fit(image.convert("RGB"), (width, height))))
            labels.append(Path(member.name).parent.name)
    return Content(np.stack(images), np.array(labels, object))


def fashion_mnist(card: Card, paths: Sequence[Path]) -> Content:
    (stored,) = map(np.load, paths)
    return _images(card, [stored[f"{kind}_{part}"] for part in PARTS for kind in "xy"])


def idx(card: Card, paths: Sequence[Path]) -> Content:
    """Read the publisher's files: images and labels for training, then for the test."""
    return _images(card, [_idx_array(path) for path in paths])


def _images(card: Card, arrays: Sequence[np.ndarray]) -> Content:
    x_train, y_train, x_test, y_test = arrays
    names = np.array(card.classes)
    split = np.repeat(np.array(PARTS, object), [len(y_train), len(y_test)])
    y = np.concatenate([y_train, y_test])
    return Content(np.concatenate([x_train, x_test]), names[y], split)


def _idx_array(path: Path) -> np.ndarray:
    """Read two zeros, the type (8: bytes), the dimensions' number and 4-byte sizes, the values."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


SCENES = {"train": "train", "val": "validation", "test": "test"}  # CamVid's folders, and parts


def camvid(card: Card, paths: Sequence[Path]) -> Content:
    """Read street scenes: JPEGs one after another, and a class for each pixel."""
    from PIL import Image

    (stored,) = map(np.load, paths)
    X, masks, split = [], [], []
    for short, part in SCENES.items():
        jpeg, offsets = stored[f"{short}_jpeg"], stored[f"{short}_offsets"]
        for start, end in pairwise(offsets):
            with Image.open(io.BytesIO(jpeg[start:end].tobytes())) as image:
                X.append(np.asarray(image.convert("RGB")))
        masks.append(stored[f"{short}_mask"])
        split += [part] * len(masks[-1])
    return Content(np.stack(X), np.concatenate(masks), np.array(split, object))


def camvid_archive(card: Card, paths: Sequence[Path]) -> Content:
    """Read the repository's archive: PNGs of 480 × 360, the masks in folders of their own.

    Images are halved, and cut to a height that can be halved four times; class 11 is void.
    """
    height, width, _ = card.shape
    X, masks, split = [], [], []
    for short, part in SCENES.items():
        for image, mask in _images_and_masks(paths, f"CamVid/{short}", f"CamVid/{short}annot"):
            small, classes = np.asarray(image.convert("RGB").reduce(2)), np.asarray(mask)[::2, ::2]
            top = (len(small) - height) // 2
            X.append(small[top : top + height, :width])
            classes = classes[top : top + height, :width]
            masks.append(np.where(classes < len(card.classes), classes, VOID).astype(np.uint8))
            split.append(part)
    return Content(np.stack(X), np.stack(masks), np.array(split, object))


def sections(card: Card, paths: Sequence[Path]) -> Content:
    """Read grey images of one stack, each with a mask."""
    (stored,) = map(np.load, paths)
    return Content(stored["image"], stored["mask"])


def sections_archive(card: Card, paths: Sequence[Path]) -> Content:
    """Read the repository's archive: PNGs of 512 × 512, in which membranes are dark in masks."""
    folder = "data/membrane/train"
    pairs = list(_images_and_masks(paths, f"{folder}/image", f"{folder}/label"))
    X = [np.asarray(image.convert("L").reduce(2)) for image, _ in pairs]
    masks = [np.asarray(mask.convert("L"))[::2, ::2] < 128 for _, mask in pairs]
    return Content(np.stack(X), np.stack(masks).astype(np.uint8))


def _images_and_masks(
    paths: Sequence[Path], images: str, masks: str
) -> Iterator[tuple["Image.Image", "Image.Image"]]:
    """Open the images of a folder in an archive, in the order of numbers in their names."""
    from PIL import Image

    (path,) = paths
    with tarfile.open(path) as archive:
        # The archive's first folder has the name of the repository and its branch.
        files = {name.partition("/")[2]: name for name in archive.getnames()}
        found = [name for name in files if name.rpartition("/")[0] == images]
        for name in sorted(found, key=lambda name: [int(x) for x in re.findall(r"\d+", name)]):
            mask = f"{masks}/{name.rpartition('/')[2]}"
            opened = (archive.extractfile(files[each]) for each in (name, mask))
            image, of_pixels = (Image.open(io.BytesIO(file.read())) for file in opened if file)
            yield image, of_pixels


def multilabel(card: Card, paths: Sequence[Path]) -> Content:
    """Read rows with many labels; words that are there or not, and labels, are packed bits."""
    (stored,) = map(np.load, paths)
    names, X = stored["labels"], stored["X"]
    if X.dtype == np.uint8:
        X = np.unpackbits(X, axis=1, count=int(stored["width"]))
    Y = np.unpackbits(stored["Y"], axis=1, count=len(names))
    return Content(X.astype(np.float32), Y.astype(np.int64), classes=tuple(map(str, names)))


def arff(card: Card, paths: Sequence[Path]) -> Content:
    """Read Mulan's files: the rows, all values of each or those that are not 0, and the labels."""
    rows, header = paths
    names, values = [], []
    with rows.open(encoding="utf-8") as file:
        for line in map(str.strip, file):
            if line.lower().startswith("@attribute"):
                names.append(_attribute(line))
            elif line and line[0] not in "@%":
                row = np.zeros(len(names), np.float32)
                if line.startswith("{"):
                    for pair in filter(None, line.strip("{} ").split(",")):
                        place, value = pair.split()
                        row[int(place)] = float(value)
                else:
                    row[:] = [float(value) for value in line.split(",")]
                values.append(row)
    table, place = np.stack(values), {name: i for i, name in enumerate(names)}
    listed = [label.attrib["name"] for label in ElementTree.parse(header).iter() if label.attrib]
    labels = [name for name in listed if name in place]
    columns = [place[name] for name in labels]
    X = np.delete(table, columns, 1)
    return Content(X, table[:, columns].astype(np.int64), classes=tuple(labels))


def _attribute(line: str) -> str:
    """The name in a line "@attribute name type"; one with spaces is quoted."""
    rest = line.split(maxsplit=1)[1]
    quote = rest[0] if rest[0] in "'\"" else None
    return rest[1:].partition(quote)[0] if quote else rest.split()[0]


READERS: dict[str, Callable[..., Content]] = {
    reader.__name__: reader
    for reader in (
        csv,
        npz,
        pairs,
        frames,
        cifar10,
        cifar10_binary,
        photographs,
        fashion_mnist,
        idx,
        camvid,
        camvid_archive,
        sections,
        sections_archive,
        multilabel,
        arff,
    )
}
