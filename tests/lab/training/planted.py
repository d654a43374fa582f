"""Plants mistakes, one at a time, in the source that a child process imports, and runs the tests that must find it.

    python tests/lab/training/planted.py < MISTAKES.json

On standard input: a list of {"name", "file" (below src/excessmtl), "right", "wrong", "tests"}. On standard output: a
JSON object, name -> [the exit status of pytest, the end of its words]. What is slow to import, torch above all, is
imported once, in the parent, and so is the library half of the package, where no mistake is planted; each child is a
fork that imports the laboratory half, with the mistake in it.
"""

import contextlib
import gc
import importlib.machinery
import io
import json
import os
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "excessmtl"


def plant(mistake):
    """From now on, the file is imported with the mistake in it."""
    path, read = str(PACKAGE / mistake["file"]), importlib.machinery.SourceFileLoader.get_code

    def get_code(loader, fullname):
        if loader.path != path:
            return read(loader, fullname)
        source = Path(path).read_text(encoding="utf-8")
        return compile(source.replace(mistake["right"], mistake["wrong"]), path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code


def start(mistake):
    """A child process in which pytest runs; its number, and the pipe that it answers through."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        words, status = io.StringIO(), 70
        try:
            plant(mistake)
            with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
                options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
                status = int(pytest.main([*options, *(str(ROOT / test) for test in mistake["tests"])]))
        except BaseException:
            words.write(traceback.format_exc())
        finally:
            with os.fdopen(send, "w") as pipe:
                json.dump([status, words.getvalue()[-3000:]], pipe)
            os._exit(0)
    os.close(send)
    return child, receive


def finish(child, receive):
    """What pytest said, as [exit status, the end of its output]."""
    with os.fdopen(receive) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else [70, "the child process died"]


def outcomes(mistakes):
    """By name, two at a time."""
    found, running = {}, []
    for mistake in mistakes:
        running.append((mistake["name"], start(mistake)))
        if len(running) == 2:
            name, begun = running.pop(0)
            found[name] = finish(*begun)
    return found | {name: finish(*begun) for name, begun in running}


if __name__ == "__main__":
    import sqlite3  # noqa: F401

    import hypothesis  # noqa: F401
    import lightning.fabric  # noqa: F401
    import pandas  # noqa: F401
    import pytest
    import scipy.integrate
    import scipy.stats  # noqa: F401
    import torch
    import torch.utils.tensorboard
    import torchmetrics  # noqa: F401

    torch.set_num_threads(1)  # threads do not survive a fork
    sys.path[:0] = [str(ROOT / "src")]
    mistakes = json.load(sys.stdin)
    import excessmtl  # noqa: F401

    imported = {getattr(module, "__file__", None) for module in sys.modules.values()}
    assert not imported & {str(PACKAGE / mistake["file"]) for mistake in mistakes}
    # Pytest collects garbage at its end: without this, each child would look through all that was imported here.
    gc.collect()
    gc.freeze()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they complain where others have imported what they rewrite
    os.chdir(ROOT)
    print(json.dumps(outcomes(mistakes)))
