import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache folder of the test's own: what the user has fetched must not decide what a test sees."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("EXCESSMTL_DATA", str(folder))
    return folder
