import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import DataNotFoundError
from excessmtl.lab.data.downloads import Source

FILES = {"images": b"many pixels", "labels": b"few labels"}


def works(name: str) -> bytes:
    return FILES[name]


def corrupt(name: str) -> bytes:
    return b"few lapels" if name == "labels" else FILES[name]


def unreachable(name: str) -> bytes:
    raise TimeoutError("timed out")


def interrupted(name: str) -> bytes:
    raise KeyboardInterrupt


def forbidden(name: str) -> bytes:
    raise AssertionError("this source should not have been asked")


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a data set `toy` with the given sources in place of the catalogue."""

    def put(*fetches: Source) -> None:
        known = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
        ways = {fetch.__name__: fetch for fetch in fetches}
        toy = sources.Dataset("toy", "a toy", "ask around", "`plaything`", known, ways)
        monkeypatch.setattr(sources, "catalogue", lambda: (toy,))

    return put


def test_the_first_source_that_works_is_used(cache: Path, offer: Callable[..., None]) -> None:
    offer(unreachable, corrupt, works, forbidden)
    assert sources.where("toy") is None
    assert sources.get("toy") == cache / "toy" == sources.where("toy")
    assert {path.name: path.read_bytes() for path in (cache / "toy").iterdir()} == FILES
    (cache / "ordinary").touch()
    assert (cache / "toy" / "labels").stat().st_mode == (cache / "ordinary").stat().st_mode


def test_what_is_in_the_cache_is_not_fetched_again(offer: Callable[..., None]) -> None:
    offer(works)
    sources.get("toy")
    offer(forbidden)
    sources.get("toy")


def test_a_damaged_file_in_the_cache_is_replaced(cache: Path, offer: Callable[..., None]) -> None:
    offer(works)
    (sources.get("toy") / "labels").write_bytes(b"few la")
    sources.get("toy")
    assert (cache / "toy" / "labels").read_bytes() == FILES["labels"]


def test_all_failures_are_listed_with_what_to_use_instead(offer: Callable[..., None]) -> None:
    offer(unreachable, corrupt)
    with pytest.raises(DataNotFoundError) as error:
        sources.get("toy")
    message = str(error.value)
    assert "unreachable (timed out); corrupt (SHA256 hash of downloaded file (labels) does not match" in message
    assert message.endswith("Use the stand-in meanwhile: `plaything`.")
    assert "\n" not in message
    assert sources.where("toy") is None


def test_every_attempt_is_reported_as_it_begins(offer: Callable[..., None]) -> None:
    offer(unreachable, works)
    lines: list[str] = []
    sources.get("toy", lines.append)
    assert lines == ["fetching toy from unreachable ...", "  failed: timed out", "fetching toy from works ..."]


def test_an_interruption_leaves_nothing_behind(cache: Path, offer: Callable[..., None]) -> None:
    offer(interrupted, works)
    with pytest.raises(KeyboardInterrupt):
        sources.get("toy")
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_half_of_the_files_is_not_there(cache: Path, offer: Callable[..., None]) -> None:
    offer(works)
    (cache / "toy").mkdir()
    (cache / "toy" / "images").write_bytes(FILES["images"])
    assert sources.where("toy") is None


def test_the_named_data_sets() -> None:
    assert [dataset.name for dataset in sources.catalogue()] == [
        "mnist",
        "vader",
        "lidc",
        "qm9",
        "sarcos",
        "office-home",
        "nyuv2",
        "cityscapes",
        "celeba",
        "pacs",
        "tox21",
        "school",
    ]
    assert all(dataset.summary and dataset.directions for dataset in sources.catalogue())


def test_a_data_set_by_path_says_where_to_get_it(cache: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"not available: download sarcos_inv\.mat .* or put it at"):
        sources.get("sarcos")
    with pytest.raises(DataNotFoundError, match="use the stand-in `simulated-arm`"):
        sources.find("sarcos", None)
    with pytest.raises(DataNotFoundError, match=r"--data /no/such/place does not exist"):
        sources.find("sarcos", Path("/no/such/place"))
    (cache / "sarcos").mkdir()
    assert sources.get("sarcos") == sources.find("sarcos", None) == cache / "sarcos"


def test_an_unknown_name_lists_the_known_ones() -> None:
    for function in (sources.get, sources.where):
        with pytest.raises(ValueError, match="no data set 'minst'; known are mnist, vader, lidc, qm9, sarcos"):
            function("minst")


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "{given}/excessmtl"),
        ("linux", None, "{home}/.cache/excessmtl"),
        ("darwin", None, "{home}/Library/Caches/excessmtl"),
        ("win32", "LOCALAPPDATA", "{given}/excessmtl"),
        ("win32", None, "{home}/AppData/Local/excessmtl"),
    ],
)
def test_the_cache_folder_of_each_platform(
    monkeypatch: pytest.MonkeyPatch, platform: str, variable: str | None, expected: str
) -> None:
    for name in ("EXCESSMTL_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "/given")
    monkeypatch.setattr(sources.sys, "platform", platform)
    assert sources.cache_folder() == Path(expected.format(given="/given", home=Path.home()))


@pytest.mark.slow
def test_mnist_really_comes(cache: Path) -> None:
    folder = sources.get("mnist")
    assert sorted(path.name for path in folder.iterdir()) == sorted(sources.catalogue()[0].files)


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there is no such device here")
def test_a_device_is_not_read() -> None:
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        sources.find("sarcos", Path("/dev/null"))
