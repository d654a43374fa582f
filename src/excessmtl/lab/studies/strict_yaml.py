"""YAML as people mean it: 1e-3 is a number, a key that stands there twice is a mistake, and there are no aliases."""

import re
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # A few nested aliases stand for billions of values, which every check would look at.
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise ValueError(f"*{event.anchor} (line {event.start_mark.line + 1}) is an alias; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} stands there twice (line {node.start_mark.line + 1} and after); keep one")
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1, where a number with an exponent needs a dot: 1e-3 would be a word.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file as plain values; what cannot be read is one sentence that names the file."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a SafeLoader: plain values only
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{path}{line} is not YAML: {error.problem}; texts with brackets need quotes") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
