"""Pages written for GitHub, as the site needs them.

Pages link to files beside docs/, which the site does not have. Pictures and plain data are copied into the site.
Other files and folders are linked at the repository's address (`Repository` in pyproject's urls); where there is none,
the text stays and the link goes.
"""

import posixpath
import re
import tomllib
from pathlib import Path

from mkdocs.structure.files import File
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parent.parent
COPIED = {".csv", ".png", ".svg", ".txt"}
FENCE = re.compile(r"(^```.*?^```)", flags=re.DOTALL | re.MULTILINE)
NESTED = re.compile(r"^ {2,3}(?=[-*] |\d+\. )", flags=re.MULTILINE)
LINK = re.compile(r"(?P<text>!?\[[^\]]+\])\((?P<target>[^)\s]+)\)")


def repository():
    """The address under which files of the repository are found, or None."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def on_config(config):
    """Headings get the anchors that GitHub gives them, and the site a link to the repository."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    config.repo_url = repository()
    return config


def on_page_markdown(markdown, page, config, files):
    """The page with links that leave docs/, or lead to a folder, replaced, and inner lists indented."""
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def replace(link):
        path = (folder / link["target"].partition("#")[0]).resolve()
        inside = path.is_relative_to(config.docs_dir)
        if "://" in link["target"] or not path.exists() or (inside and path.is_file()) or path == folder:
            return link[0]  # what does not exist is for mkdocs to report
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in COPIED:
            copy = f"repository/{name}"
            if files.get_file_from_path(copy) is None:
                files.append(File.generated(config, copy, abs_src_path=str(path)))
            target = posixpath.relpath(copy, posixpath.dirname(page.file.src_uri) or ".")
        elif address := repository():
            target = f"{address.rstrip('/')}/{'tree' if path.is_dir() else 'blob'}/main/{name}"
        else:
            return link["text"].strip("[]")
        return f"{link['text']}({target})"

    parts = FENCE.split(markdown)
    # Python's Markdown wants four spaces before the items of an inner list, where GitHub is content with two.
    parts[::2] = [NESTED.sub("    ", LINK.sub(replace, part)) for part in parts[::2]]
    return "".join(parts)
