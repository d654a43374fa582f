import hashlib
from pathlib import Path

import pytest

from excessmtl.lab.data import sources
from excessmtl.lab.data.base import DataNotFoundError, cache_folder

FILES = {"images": b"many pixels", "labels": b"few labels"}


def works(name):
    return FILES[name]


def corrupt(name):
    return b"few lapels" if name == "labels" else FILES[name]


def unreachable(name):
    raise TimeoutError("timed out")


def interrupted(name):
    raise KeyboardInterrupt


def forbidden(name):
    raise AssertionError("this source should not have been asked")


@pytest.fixture
def offer(monkeypatch):
    """Puts a data set `toy` with the given sources in place of the catalogue."""

    def put(*fetches):
        known = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
        ways = {fetch.__name__: fetch for fetch in fetches}
        toy = sources.Dataset("toy", "a toy", "ask around", "`plaything`", known, ways)
        monkeypatch.setattr(sources, "CATALOGUE", (toy,))

    return put


def test_the_first_source_that_works_is_used(cache, offer):
    offer(unreachable, corrupt, works, forbidden)
    assert sources.where("toy") is None
    lines: list[str] = []
    assert sources.get("toy", lines.append) == cache / "toy" == sources.where("toy")
    assert lines[:2] == ["fetching toy from unreachable ...", "  failed: timed out"]
    assert lines[-1] == "fetching toy from works ..."
    offer(forbidden)
    sources.get("toy")  # what is in the cache is not fetched again
    assert {path.name: path.read_bytes() for path in (cache / "toy").iterdir()} == FILES
    (cache / "ordinary").touch()
    assert (cache / "toy" / "labels").stat().st_mode == (cache / "ordinary").stat().st_mode


def test_a_damaged_file_in_the_cache_is_replaced(cache, offer):
    offer(works)
    (sources.get("toy") / "labels").write_bytes(b"few la")
    (cache / "toy" / "images").unlink()
    assert sources.where("toy") is None
    sources.get("toy")
    assert (cache / "toy" / "images").read_bytes() == FILES["images"]
    assert (cache / "toy" / "labels").read_bytes() == FILES["labels"]


def test_all_failures_are_listed_with_what_to_use_instead(offer):
    offer(unreachable, corrupt)
    with pytest.raises(DataNotFoundError) as error:
        sources.get("toy")
    message = str(error.value)
    assert "unreachable (timed out); corrupt (labels has another sha256 than the known one)" in message
    assert message.endswith("Use the stand-in meanwhile: `plaything`.")
    assert "\n" not in message
    assert sources.where("toy") is None


def test_an_interruption_leaves_nothing_behind(cache, offer):
    offer(interrupted, works)
    with pytest.raises(KeyboardInterrupt):
        sources.get("toy")
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_an_unknown_name_lists_the_known_ones():
    known = "mnist, vader, lidc, qm9, sarcos, office-home, nyuv2, pacs, tox21, school"
    for function in (sources.get, sources.where):
        with pytest.raises(ValueError, match=f"no data set 'minst'; known are {known}"):
            function("minst")


def test_a_data_set_by_path_says_where_to_get_it(cache):
    with pytest.raises(DataNotFoundError, match=r"not available: download sarcos_inv\.mat .* or put it at"):
        sources.get("sarcos")
    (cache / "sarcos").mkdir()
    assert sources.get("sarcos") == sources.find("sarcos", None) == cache / "sarcos"


def test_the_cache_folder_is_the_users_choice_or_the_platforms(monkeypatch, cache):
    assert cache_folder() == cache
    monkeypatch.delenv("EXCESSMTL_DATA")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: Path("/caches", name))
    assert cache_folder() == Path("/caches/excessmtl")


@pytest.mark.slow
def test_mnist_really_comes(cache):
    assert sorted(path.name for path in sources.get("mnist").iterdir()) == sorted(sources.CATALOGUE[0].files)


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there is no such device here")
def test_a_device_is_not_read():
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        sources.find("sarcos", Path("/dev/null"))
