"""Tiny made data sets, in the formats of the originals and of the packed files."""

import gzip
import hashlib
import io
import tarfile
import zipfile

import numpy as np
from evalign_study.data import card
from PIL import Image


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def lines(rows, separator=",", end="\n"):
    return "".join(separator.join(map(str, row)) + end for row in rows).encode()


def packed_csv(columns, rows):
    return gzip.compress(lines([columns, *rows]))


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


PEOPLE = [
    [39, "State-gov", 77516, "Bachelors", 13, "Never-married", "Adm-clerical", "Not-in-family"],
    [50, "?", 83311, "Bachelors", 13, "Married-civ-spouse", "?", "Husband"],
    [50, "?", 83311, "Bachelors", 13, "Married-civ-spouse", "?", "Husband"],
]
PEOPLE[0] += ["White", "Male", 2174, 0, 40, "United-States", "<=50K"]
PEOPLE[1] += ["Black", "Female", 0, 0, 13, "Cuba", ">50K"]
PEOPLE[2] += ["Black", "Female", 0, 0, 13, "Cuba", "<=50K"]


def adult():
    train, test = PEOPLE[:2], PEOPLE[2:]
    parts = [[*row, "train"] for row in train] + [[*row, "test"] for row in test]
    packed = packed_csv([*card("adult").read["names"], "split"], parts)
    return adult_originals(train, test), {"adult/adult.csv.gz": packed}


def adult_originals(train, test):
    """Write files that end with a blank line; the second has a heading, and dots after labels."""
    second = lines(test, ", ").replace(b"50K\n", b"50K.\n")
    originals = {"adult.data": lines(train, ", "), "adult.test": b"|1x3 Cross validator\n" + second}
    return {name: content + b"\n" for name, content in originals.items()}


def mammography():
    rows = [
        [0.23001961, 5.07, -0.276, 0.83, -0.38, 0.48, label] for label in ("'-1'", "'1'", "'-1'")
    ]
    columns = card("mammography").read["names"]
    packed = packed_csv(columns, [[*row[:-1], row[-1].strip("'")] for row in rows])
    original = lines(rows)[:-1]  # the last line has no end
    return {"mammography.csv": original}, {"mammography/mammography.csv.gz": packed}


def creditcard():
    X = np.random.default_rng(0).normal(size=(4, 30)).round(9)
    X[:, 0], X[:, -1] = [0, 1, 1, 2], [149.62, 0, 2.69, 25691.16]
    y = [0, 1, 0, 0]
    columns = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount"]
    heading = ",".join(f'"{name}"' for name in [*columns, "Class"]).encode() + b"\n"
    original = heading + lines(
        [*map(str, row), f'"{label}"'] for row, label in zip(X, y, strict=True)
    )
    packed = npz(X=X.astype(np.float32), y=np.array(y, np.uint8), columns=np.array(columns))
    return {"creditcard.csv": original}, {"creditcard/creditcard.npz": packed}


def cifar10():
    """Make two images for each of the six batches."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(12, 32, 32, 3), dtype=np.uint8)
    y = np.array([6, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0], np.uint8)
    records = np.hstack([y[:, None], images.transpose(0, 3, 1, 2).reshape(12, -1)])
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    # The archive is not in order, and holds other files too.
    order = [(names[i], records[2 * i : 2 * i + 2].tobytes()) for i in (5, 1, 0, 2, 4, 3)]
    files = {
        f"cifar-10-batches-bin/{name}": content
        for name, content in [*order, ("readme.html", b"<p>")]
    }

    def stored(rows):
        red, green, blue = images[rows].transpose(3, 0, 1, 2)
        planes = np.stack([red - green, green, blue - green])
        planes = np.diff(np.diff(planes, axis=3, prepend=np.uint8(0)), axis=2, prepend=np.uint8(0))
        return npz(planes=planes, y=y[rows])

    parts = dict(
        zip(card("cifar10").files, map(stored, np.split(np.arange(12), [5, 10])), strict=True)
    )
    return {"cifar-10-binary.tar.gz": archive(files, "w:gz")}, parts


def archive(files, mode="w"):
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode=mode) as writer:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            writer.addfile(entry, io.BytesIO(content))
    return stored.getvalue()


def caltech256():
    """Make images of several sizes, one of them grey, out of order and among other files."""
    grey = Image.new("L", (80, 120), 60)
    grey.paste(200, (0, 60, 80, 120))  # its lower half
    wide = Image.new("RGB", (600, 200), (250, 10, 10))
    wide.paste((20, 40, 200), (200, 0, 400, 200))  # its middle
    files = {
        "257.clutter/257_0001.jpg": _image(np.asarray(grey), "JPEG"),
        "056.dog/greg/vision309/056_0001.jpg": _image(np.asarray(wide), "JPEG"),
        "198.spider/RENAME2": b"mv",
        "001.ak47/001_0002.jpg": _image(np.asarray(wide), "JPEG"),
        "001.ak47/001_0001.jpg": _image(np.full((64, 64, 3), (5, 120, 60), np.uint8), "JPEG"),
    }
    stored = archive({f"256_ObjectCategories/{name}": content for name, content in files.items()})
    name = "256_ObjectCategories.tar"
    return {name: stored}, {f"caltech256/{name}": stored}


def fashion_mnist():
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(256, size=(5, 28, 28), dtype=np.uint8),
        "y_train": np.array([0, 9, 1, 0, 2], np.uint8),
        "x_test": rng.integers(256, size=(2, 28, 28), dtype=np.uint8),
        "y_test": np.array([3, 0], np.uint8),
    }
    names = [url.rpartition("/")[2] for url in card("fashion_mnist").public]
    original = {
        name: gzip.compress(
            bytes([0, 0, 8, x.ndim]) + np.array(x.shape, ">i4").tobytes() + x.tobytes()
        )
        for name, x in zip(names, arrays.values(), strict=True)
    }
    return original, {"fashion_mnist/fashion_mnist.npz": npz(**arrays)}


def satimage():
    rows = [[*range(i, i + 36), label] for i, label in enumerate([3, 7, 1])]
    columns = [*card("satimage").read["names"], "split"]
    parts = [[*row, part] for row, part in zip(rows, ["train", "train", "test"], strict=True)]
    packed = packed_csv(columns, parts)
    return satimage_originals(rows[:2], rows[2:]), {"extras/satimage.csv.gz": packed}


def satimage_originals(train, test):
    return {"sat.trn": lines(train, " "), "sat.tst": lines(test, " ")}


def yeast():
    rows = [
        ["ADT1_YEAST", "0.58", "0.61", "0.47", "0.13", "0.50", "0.00", "0.48", "0.22", "MIT"],
        ["ADT2_YEAST", "0.58", "0.61", "0.47", "0.13", "0.50", "0.00", "0.48", "0.22", "ERL"],
    ]
    packed = packed_csv(card("yeast").read["names"], rows)
    return {"yeast.data": lines(rows, "  ")}, {"extras/yeast.csv.gz": packed}


def page_blocks():
    rows = [
        [5, 7, 35, 1.4, 0.4, 0.657, 2.33, 14, 23, 6, 1],
        [6, 3, 18, 500.0, 0.5, 0.9, 2, 9, 17, 4, 5],
    ]
    text = b"@relation page-blocks\n@attribute height integer [1, 804]\n@data\n" + lines(rows, ", ")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("page-blocks.dat", text)
    packed = packed_csv(card("page_blocks").read["names"], rows)
    return {"page-blocks.zip": file.getvalue()}, {"extras/page_blocks.csv.gz": packed}


def winequality_white():
    rows = [[7, 0.27, 0.36, 20.7, 0.045, 45, 170, 1.001, 3, 0.45, 8.8, label] for label in (6, 9)]
    packed = [[float(v) for v in row[:-1]] + row[-1:] for row in rows]
    columns = card("winequality_white").read["names"]
    path = "extras/winequality_white.csv.gz"
    return {"winequality-white.csv": lines(rows)}, {path: packed_csv(columns, packed)}


def reuters_r8():
    texts = [("earn", 'net "profit" rose'), ("acq", "NA"), ("ship", "port of call")]
    quoted = [
        [part, label, '"' + text.replace('"', '""') + '"']
        for part, (label, text) in zip(["train", "train", "test"], texts, strict=True)
    ]
    original = {"train.txt": lines(texts[:2], "\t"), "test.txt": lines(texts[2:], "\t")}
    packed = packed_csv(["split", "class", "text"], quoted)
    return original, {"extras/reuters_r8.csv.gz": packed}


def annthyroid():
    X = np.random.default_rng(0).normal(size=(5, 6))
    stored = npz(X=X, y=np.array([0, 0, 1, 0, 1]))
    return {"2_annthyroid.npz": stored}, {"extras/annthyroid.npz": stored}


def camvid():
    """Make four scenes of one colour, on which the left half is class 3, and a strip is void."""
    masks = np.zeros((4, 12, 16), np.uint8)
    masks[:, :, :8], masks[:, 4:6] = 3, 11
    colours, shorts = [20, 90, 160, 230], ["train", "train", "val", "test"]
    files = {}
    for number, (short, colour, mask) in enumerate(zip(shorts, colours, masks, strict=True)):
        # The numbers decide the order, not the alphabet.
        name = f"0001TP_{9 + number}.png"
        files[f"main/CamVid/{short}/{name}"] = _image(np.full((12, 16, 3), colour, np.uint8))
        files[f"main/CamVid/{short}annot/{name}"] = _image(mask)
    small = np.where(masks == 11, 255, masks)[:, 2:10:2, ::2]
    stored = {}
    for short in dict.fromkeys(shorts):
        rows = [row for row, where in enumerate(shorts) if where == short]
        jpegs = [_image(np.full((4, 8, 3), colours[row], np.uint8), "JPEG") for row in rows]
        stored[f"{short}_jpeg"] = np.frombuffer(b"".join(jpegs), np.uint8)
        stored[f"{short}_offsets"] = np.cumsum([0, *map(len, jpegs)])
        stored[f"{short}_mask"] = small[rows]
    return {"archive.tar.gz": archive(files, "w:gz")}, {"dense/camvid_240x176.npz": npz(**stored)}


def membrane():
    """Make sections of equal blocks, whose mean is themselves."""
    X = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    mask = (X % 3 == 0).astype(np.uint8)
    files = {}
    for number in range(2):
        for folder, pixels in {"image": X, "label": 255 * (1 - mask)}.items():
            name = f"unet-main/data/membrane/train/{folder}/{number}.png"
            files[name] = _image(pixels[number].repeat(2, 0).repeat(2, 1))
    return {"archive.tar.gz": archive(files, "w:gz")}, {
        "dense/membrane_256.npz": npz(image=X, mask=mask)
    }


def _image(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, quality=95)
    return file.getvalue()


def enron():
    """Make three e-mails with values that are not 0; the header also names a group of labels."""
    attributes = ["w1", "'two words'", "A.A1", "B.B1", "w3"]
    rows = ["{0 1,2 1}", "{3 1, 4 1}", "{2 1}"]
    return arff(attributes, rows, ["B", "B.B1", "A.A1"]), _many("enron", bits=True)


def emotions():
    """Make the same rows, with all values of each."""
    attributes = ["w1", "w2", "A.A1", "B.B1", "w3"]
    rows = ["1,0,1,0,0", "0,0.0,0,1,1", "0,0,1,0,0"]
    return arff(attributes, rows, ["B.B1", "A.A1"]), _many("emotions", bits=False)


def arff(attributes, rows, labels):
    head = ["@relation made", "% a comment", *(f"@attribute {name} numeric" for name in attributes)]
    text = "\n".join([*head, "@data", *rows]) + "\n"
    listed = "".join(f'<label name="{name}"></label>' for name in labels)
    header = f'<labels xmlns="http://mulan.sourceforge.net/labels">{listed}</labels>'
    return {"rows.arff": text.encode(), "labels.xml": header.encode()}


def _many(name, *, bits):
    X = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    Y = np.array([[0, 1], [1, 0], [0, 1]], np.uint8)
    X = np.packbits(X, axis=1) if bits else X.astype(np.float32)
    stored = npz(X=X, width=3, Y=np.packbits(Y, axis=1), labels=np.array(["B.B1", "A.A1"]))
    return {f"multilabel/{name}.npz": stored}


ROWS = (adult, mammography, creditcard, satimage, yeast, page_blocks, winequality_white)
IMAGES = (cifar10, caltech256, fashion_mnist, membrane)
BOTH = {make.__name__: make for make in (*ROWS, *IMAGES, reuters_r8, annthyroid, enron, emotions)}
