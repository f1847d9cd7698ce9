"""The shape of the package: import cycles, names, folders and wiring stay as CONTRIBUTING says."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import treadle

ROOT = Path(treadle.__file__).parent
# These are flat by design: one file per resource, per tool, and the parts of one adapter.
LARGE_FOLDERS = {"protocol", "server/handlers", "engine/tools", "wink"}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {_name(path): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            found = [each.name for each in names]
        case ast.ImportFrom(module=str(module), level=0, names=names):
            inner = [f"{module}.{each.name}" for each in names]
            found = [each if each in TREES else module for each in inner]
        case _:
            found = []
    yield from (each for each in found if each in TREES)


def _imports_at_run_time(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported while a module is loaded."""
    for node in ast.iter_child_nodes(tree):
        is_type_checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not is_type_checking and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imported(node)
            yield from _imports_at_run_time(node)


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    pending = [start]
    while pending:
        for each in edges[pending.pop()] - seen:
            seen.add(each)
            pending.append(each)
    return seen


def test_no_module_imports_itself_through_others() -> None:
    edges = {name: set(_imports_at_run_time(tree)) - {name} for name, tree in TREES.items()}

    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        raise AssertionError(f"import cycle: {error.args[1]}") from None


def test_fewer_than_eight_modules_know_each_other() -> None:
    """With type-only and late imports: a larger cycle can only be understood as a whole."""
    edges = {
        name: {each for node in ast.walk(tree) for each in _imported(node)} - {name}
        for name, tree in TREES.items()
    }
    reachable = {name: _reachable(name, edges) for name in TREES}

    cycles = {
        frozenset(other for other in reachable[name] if name in reachable[other]) for name in TREES
    }

    assert [sorted(cycle) for cycle in cycles if len(cycle) >= 8] == []


def test_a_public_class_name_has_one_meaning() -> None:
    names = Counter(
        node.name
        for module, tree in TREES.items()
        if not module.startswith("treadle.protocol")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [name for name, count in names.items() if count > 1] == []


def test_three_files_with_a_prefix_are_a_folder() -> None:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        folder = path.parent.relative_to(ROOT).as_posix()
        prefix = re.match(r"([a-z]+)_", path.stem)
        if prefix and not folder.startswith("protocol"):
            groups[folder, prefix[1]].append(path.name)

    assert {key: files for key, files in groups.items() if len(files) >= 3} == {}


def test_a_folder_has_at_most_sixteen_files() -> None:
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))

    assert {
        folder: size
        for folder, size in sizes.items()
        if size - (ROOT / folder / "__init__.py").exists() > 16 and folder not in LARGE_FOLDERS
    } == {}


def test_no_attribute_is_set_through_another_object() -> None:
    """Constructors receive what they need; `a.b.c = x` would be a second way."""
    found = [
        f"{module}:{node.lineno}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Attribute)
    ]

    assert found == []
