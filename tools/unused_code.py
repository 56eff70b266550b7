"""Finds code of the product that nothing but a test uses, and class names that are used more than once.

Usage: python tools/unused_code.py [--class-names] [--root DIR]

Code in use is followed from the entry points: a definition is in use when one that is in use names it. Methods go by
their name alone, so an unused method is missed while another class has one of the same name that is called.
`[tool.unused_code]` in pyproject.toml lists what is kept all the same, and how many class names may repeat.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# A class with no other base has no methods that are called from outside of our code.
PLAIN_BASES = {
    *(
        "Enum",
        "IntEnum",
        "StrEnum",
        "IntFlag",
        "NamedTuple",
        "Protocol",
        "Struct",
        "TypedDict",
        "Generic",
    ),
    *("Exception", "ValueError"),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = ast.Import | ast.ImportFrom


class Name(NamedTuple):
    """A module (`inner` is empty), something that it defines, or a method (`Class.method`)."""

    module: str
    inner: str = ""

    def __str__(self) -> str:
        return f"{self.module}.{self.inner}" if self.inner else self.module


class Module:
    """One source file: what it defines, and what the names in it stand for."""

    def __init__(self, name: str, is_package: bool, source: bytes) -> None:
        self.name = name
        self.package = name if is_package else name.rpartition(".")[0]
        tree = ast.parse(source, name)
        self.imported: dict[
            str, list[Name]
        ] = {}  # several, where branches import different things under one name
        for node in ast.walk(tree):
            for bound, target in _bound_by(node):
                self.imported.setdefault(bound, []).append(target)
        self.parts: dict[str, list[ast.AST]] = {
            "": []
        }  # the code of each definition; "" runs on import
        self.lines: dict[str, int] = {"": 1}
        for node in tree.body:
            self._take(node)

    def _take(self, node: ast.stmt) -> None:
        for inner in _defined_by(node) or [""]:
            self.parts.setdefault(inner, []).append(node)
            self.lines.setdefault(inner, node.lineno)
        if isinstance(node, Function):
            # `@group.command()` puts the function into the group: whoever uses the group uses the function.
            for owner in _names_in(node.decorator_list) & self.parts.keys():
                self.parts[owner].append(ast.Name(node.name))
        elif isinstance(node, ast.ClassDef):
            methods = _methods(node)
            bare = [
                *node.bases,
                *node.keywords,
                *node.decorator_list,
                *(one for one in node.body if one not in methods),
            ]
            self.parts[node.name] = bare
            for method in methods:
                self.parts[f"{node.name}.{method.name}"] = [method]
                self.lines[f"{node.name}.{method.name}"] = method.lineno


def _bound_by(node: ast.AST) -> Iterator[tuple[str, Name]]:
    if isinstance(node, ast.ImportFrom):
        yield from (
            (one.asname or one.name, Name(node.module or "", one.name)) for one in node.names
        )
    elif isinstance(node, ast.Import):
        yield from ((one.asname, Name(one.name)) for one in node.names if one.asname)


def _defined_by(node: ast.stmt) -> list[str]:
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [
        part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
    ]


def _names_in(nodes: Iterable[ast.AST]) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [part for part in node.body if isinstance(part, Function)]


def _is_program(text: str) -> bool:
    """Whether a string holds Python, such as a program that another interpreter is started with."""
    try:
        return bool(ast.parse(text).body)
    except SyntaxError:
        return False


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class Usage:
    """All modules of the product, and what of them is in use."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules
        self.used: set[Name] = set()
        self._queue: list[Name] = []
        self._attributes: set[str] = set()  # all that code in use has named behind a dot
        self._waiting: dict[
            str, list[Name]
        ] = {}  # methods of classes in use that nobody has named yet

    def named(self, text: str) -> Name:
        """The definition behind a dotted name; a name that leads nowhere is refused, so that no list goes stale."""
        for name, module in self.modules.items():
            if text.startswith(f"{name}.") and text.removeprefix(f"{name}.") in module.parts:
                return Name(name, text.removeprefix(f"{name}."))
        raise LookupError(f"{text} is kept in pyproject.toml, but not there")

    def run(self, module: Module) -> None:
        """Take a program that is no part of the product as used, whole."""
        self.modules[module.name] = module
        self.use(Name(module.name, inner) for inner in module.parts)

    def use(self, names: Iterable[Name]) -> None:
        """Take these as used, and all that they lead to."""
        for name in names:
            self._mark(name)
        while self._queue:
            name = self._queue.pop()
            module = self.modules[name.module]
            for part in module.parts[name.inner]:
                self.follow(module, part)
            if not name.inner:
                self._mark(Name(name.module.rpartition(".")[0]))
                self.use(Name(module.name, inner) for inner in module.parts if _is_special(inner))
            elif "." not in name.inner:
                self._open_class(module, name.inner)

    def follow(self, module: Module, code: ast.AST) -> None:
        """Take as used what a piece of code names: by a name, behind a dot, by an import, in a string."""
        texts, attributes = set(), set()
        for node in ast.walk(code):
            if isinstance(node, Import):
                self._run_import(node)
            elif isinstance(node, ast.Name):
                self._mark(Name(module.name, node.id))
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
                self._name_attribute(module, node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
        self._mark_tables(module, texts)
        for text in texts:
            self._mark_family(text, attributes)
            if "import" in text and _is_program(text):
                self.run(Module(f"{module.name}:{text}", False, text.encode()))

    def _mark(self, name: Name) -> None:
        if str(name) in self.modules:
            name = Name(str(name))
        module = self.modules.get(name.module)
        if module is None or name in self.used:
            return
        if name.inner in module.parts:
            self.used.add(name)
            self._queue.append(name)
            self._mark(Name(name.module))
        for target in module.imported.get(name.inner, ()):
            self._mark(target)

    def _run_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """An import runs the modules; what it names counts when it is named again."""
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        else:
            names = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
        for name in names:
            self._mark(Name(name))

    def _mark_family(self, prefix: str, attributes: set[str]) -> None:
        """`import_module(f"package.{name}").THING` uses the THING of every module of the package that has one."""
        for name, module in self.modules.items():
            if f"{name.rpartition('.')[0]}." == prefix:
                for inner in attributes & module.parts.keys():
                    self._mark(Name(name, inner))

    def _mark_tables(self, module: Module, texts: set[str]) -> None:
        """A table that names modules, absolute or below its package, uses what it names of them."""
        for text in texts:
            for found in {text, f"{module.package}.{text}"} & self.modules.keys():
                self._mark(Name(found))
                for inner in texts & self.modules[found].parts.keys():
                    self._mark(Name(found, inner))

    def _open_class(self, module: Module, inner: str) -> None:
        own = [name for name in module.parts if name.startswith(f"{inner}.")]
        from_outside = any(
            not self._is_plain(module, base)
            for base in module.parts[inner]
            if isinstance(base, ast.expr)
        )
        for name in own:
            method = name.rpartition(".")[2]
            if from_outside or _is_special(method) or method in self._attributes:
                self._mark(Name(module.name, name))
            else:
                self._waiting.setdefault(method, []).append(Name(module.name, name))

    def _is_plain(self, module: Module, base: ast.expr) -> bool:
        """Whether a base is ours or one of the plain ones: then nobody else calls our methods."""
        while isinstance(base, ast.Subscript):
            base = base.value
        text = ast.unparse(base)
        ours = text in module.parts or any(
            target.module in self.modules for target in module.imported.get(text, ())
        )
        return ours or text.rpartition(".")[2] in PLAIN_BASES

    def _name_attribute(self, module: Module, node: ast.Attribute) -> None:
        self._attributes.add(node.attr)
        for name in self._waiting.pop(node.attr, ()):
            self._mark(name)
        if isinstance(node.value, ast.Name):
            for target in module.imported.get(node.value.id, ()):
                self._mark(Name(str(target), node.attr))


def read_modules(folder: Path) -> dict[str, Module]:
    """The modules below a package's folder, by name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, is_package, path.read_bytes())
    return found


class Settings(NamedTuple):
    """What pyproject.toml says about unused code."""

    entry_points: list[Name]  # what the installed programs call
    kept: list[str]
    most_repeated: int


def read_settings(root: Path) -> Settings:
    tables = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    own = tables["tool"]["unused_code"]
    scripts = tables["project"]["scripts"].values()
    return Settings(
        [Name(*script.split(":")) for script in scripts],
        [*own["kept"]],
        own["most_repeated_class_names"],
    )


def unused(root: Path, settings: Settings) -> list[str]:
    """What of the product nothing but tests use, as `module.name`; a class or module stands for what is in it."""
    [package] = [path.parent for path in (root / "src").glob("*/__init__.py")]
    usage = Usage(read_modules(package))
    usage.use([Name(package.name), *settings.entry_points])
    for path in sorted((root / "tools").glob("*.py")):
        usage.run(Module(f"tools.{path.stem}", False, path.read_bytes()))
    usage.use(usage.named(text) for text in settings.kept)
    return sorted(_outermost(usage))


def _outermost(usage: Usage) -> Iterator[str]:
    for module in usage.modules.values():
        if Name(module.name) not in usage.used:
            yield module.name
            continue
        for inner in module.parts:
            owner = Name(module.name, inner.partition(".")[0])
            if Name(module.name, inner) not in usage.used and (
                owner in usage.used or "." not in inner
            ):
                yield f"{module.name}.{inner}"


def repeated_class_names(root: Path) -> dict[str, list[str]]:
    """The class names that more than one module defines, each with its modules."""
    homes: dict[str, list[str]] = {}
    for path in sorted((root / "src").rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path.relative_to(root).as_posix())
    return {name: paths for name, paths in sorted(homes.items()) if len(paths) > 1}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--class-names",
        action="store_true",
        help="list the class names that are used more than once",
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parents[1],
        help="the project's folder",
    )
    options = parser.parse_args(arguments)
    repeated = repeated_class_names(options.root)
    if options.class_names:
        for name, paths in repeated.items():
            print(f"{name}: {' '.join(paths)}")
        return 0
    settings = read_settings(options.root)
    try:
        complaints = [
            f"{name}: nothing but tests uses it; delete it"
            for name in unused(options.root, settings)
        ]
    except LookupError as error:
        complaints = [str(error)]
    if len(repeated) > settings.most_repeated:
        complaints.append(
            f"{len(repeated)} class names are used more than once, {settings.most_repeated} are allowed: "
            "give a new class a name of its own (`python tools/unused_code.py --class-names` lists them)"
        )
    print(*complaints, sep="\n", end="\n" * bool(complaints), file=sys.stderr)
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
