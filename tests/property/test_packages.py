"""What holds for every work package, task list and scope."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.paths.scope import Scope
from phasegate.core.plan.dependencies import (
    compute_dependencies,
    compute_waves,
    find_cycles,
    find_scope_overlaps,
)
from phasegate.core.plan.planning import plan_packages
from phasegate.core.plan.requirements import read_spec
from phasegate.core.plan.tasks import Task, parse_tasks
from phasegate.core.plan.work_package import WorkPackage, find_package_problems, split_evenly
from phasegate.core.text.markdown_lines import collapse_whitespace
from phasegate.core.text.yaml_nodes import MalformedDocument
from phasegate.prompts.front_matter import read_document, read_yaml
from phasegate.prompts.package_reader import read_package
from phasegate.prompts.package_writer import render_package
from support.packages import LINES, PATHS, login_plan, work_packages
from support.task_lists import render

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow


@pytest.mark.demand("D2.d")
@given(package=work_packages())
def test_a_document_gives_back_the_package_it_was_written_from(package: WorkPackage) -> None:
    assert list(find_package_problems(package)) == []
    document = render_package(package, login_plan())
    reading = read_package(document)
    assert reading.findings == []
    assert reading.package == package
    assert render_package(reading.package, login_plan()) == document


@given(package=work_packages(), prose=st.text(max_size=200))
def test_no_prose_changes_what_is_read(package: WorkPackage, prose: str) -> None:
    front = render_package(package, login_plan()).partition("\n---\n")[0]
    assert read_package(f"{front}\n---\n{prose}").package == package


IDS = st.builds(lambda layer, number: f"{layer}.{number}", st.integers(1, 4), st.integers(1, 9999))
VALUES = LINES.map(lambda text: collapse_whitespace(text.replace("`", "'"))).filter(bool)
FREE = LINES.map(collapse_whitespace)


@st.composite
def task_lists(draw: st.DrawFn) -> tuple[Task, ...]:
    ids = draw(st.lists(IDS, min_size=1, max_size=8, unique=True))
    tasks = []
    for position, id_ in enumerate(ids):
        depends = (
            draw(st.lists(st.sampled_from(ids[:position]), max_size=3, unique=True))
            if position
            else []
        )
        files = draw(st.lists(PATHS, min_size=1, max_size=3, unique=True))
        spec = draw(st.lists(VALUES.filter(lambda value: not value.startswith("*")), max_size=3))
        title = draw(FREE.filter(bool))
        tasks.append(
            Task(
                id_,
                title,
                tuple(files),
                tuple(spec),
                draw(FREE),
                tuple(depends),
                draw(st.booleans()),
            )
        )
    return tuple(tasks)


@pytest.mark.demand("T3.b")
@given(tasks=task_lists())
def test_rendered_tasks_are_read_as_the_same_tasks(tasks: tuple[Task, ...]) -> None:
    found = parse_tasks(render(tasks), read_yaml)
    assert found.findings == []
    assert found.tasks == tasks


@pytest.mark.demand("D2.c")
@given(tasks=task_lists(), most=st.integers(1, 4))
def test_every_task_is_in_one_package_and_packages_can_be_done_in_order(
    tasks: tuple[Task, ...], most: int
) -> None:
    packages = plan_packages(tasks, "001-x", tasks_per_package=most)
    assert sorted(id_ for package in packages for id_ in package.tasks) == sorted(
        task.id for task in tasks
    )
    place = {id_: position for position, package in enumerate(packages) for id_ in package.tasks}
    owners: dict[str, int] = {}
    for task in tasks:
        assert all(place[other] <= place[task.id] for other in task.depends)
        for path in task.files:
            assert owners.setdefault(path, place[task.id]) == place[task.id]
    numbers = {package.work_package_id: position for position, package in enumerate(packages)}
    assert all(
        numbers[other] < at for at, package in enumerate(packages) for other in package.dependencies
    )


@pytest.mark.demand("D11.a")
@given(items=st.lists(st.integers(), max_size=40), parts=st.integers(1, 16))
def test_a_split_covers_everything_once_in_contiguous_near_equal_parts(
    items: list[int], parts: int
) -> None:
    found = split_evenly(items, parts)
    assert [item for part in found for item in part] == items
    assert len(found) == parts
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1


NAMES = ("a", "b", "ab", "a.b", "[a]", "a*")
ALL_PATHS = ["/".join(parts) for depth in (1, 2, 3) for parts in product(NAMES, repeat=depth)]
PIECES = ("a", "b", ".", "*", "**", "?", "[ab]", "[!a]", "[a]", "/", "/")


def _is_entry(text: str) -> bool:
    return (
        not text.startswith("/")
        and "//" not in text
        and text.strip("/.") != ""
        and "/./" not in f"/{text}/"
    )


ENTRIES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join).filter(_is_entry)
SCOPES = st.lists(ENTRIES, min_size=1, max_size=3)


@pytest.mark.demand("D5.f")
@given(one=SCOPES, other=SCOPES)
def test_an_overlap_of_two_scopes_is_never_missed(one: list[str], other: list[str]) -> None:
    first, second = Scope(one), Scope(other)
    shared = [path for path in ALL_PATHS if first.covers(path) and second.covers(path)]
    if shared:
        assert find_scope_overlaps({"A": one, "B": other}) == {("A", "B")}, shared[0]


@pytest.mark.demand("D5.f", "D5.g")
@given(scopes=st.lists(SCOPES, min_size=1, max_size=6), data=st.data())
def test_sound_packages_always_have_an_order(scopes: list[list[str]], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(scopes))))
    packages = []
    for at, scope in enumerate(scopes):
        earlier = [f"WP{n + 1:02}" for n in range(len(scopes)) if order[n] < order[at]]
        chosen = (
            data.draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True))
            if earlier
            else []
        )
        id_ = f"WP{at + 1:02}"
        packages.append(
            WorkPackage(
                work_package_id=id_,
                title="T",
                feature_slug="001-x",
                file_scope=tuple(scope),
                dependencies=tuple(chosen),
            )
        )
    found = compute_dependencies(packages)
    assert all(found[package.work_package_id] >= set(package.dependencies) for package in packages)
    assert sum(len(wave) for wave in compute_waves(found)) == len(packages)
    for wave in compute_waves(found):
        assert find_scope_overlaps({name: scopes[int(name[2:]) - 1] for name in wave}) == set()


GRAPHS = st.dictionaries(
    st.sampled_from("ABCDEFG"), st.lists(st.sampled_from("ABCDEFGX"), max_size=3), max_size=7
)


@given(graph=GRAPHS)
def test_cycles_are_found_exactly_where_there_is_no_order(graph: dict[str, list[str]]) -> None:
    cycles = find_cycles(graph)
    known = {name: [other for other in others if other in graph] for name, others in graph.items()}
    ordered = sum(len(wave) for wave in compute_waves(known)) == len(known)
    assert bool(cycles) is not ordered
    for cycle in cycles:
        assert cycle[0] == cycle[-1]
        assert all(after in graph[before] for before, after in pairwise(cycle))


@given(text=st.text(st.sampled_from("-\n#: []{}'\"&*!|>%@`abc1.\t\r\ufeff"), max_size=60))
def test_no_text_breaks_a_reader(text: str) -> None:
    for document in (text, f"---\n{text}\n---\n"):
        with suppress(MalformedDocument):
            read_document(document)
        assert all(found.line >= 1 for found in read_package(document).findings)
        parse_tasks(document, read_yaml)
        parse_tasks(f"```yaml\n{text}\n```", read_yaml)


MARKUP = (
    "<!--",
    "-->",
    "sk:fr",
    "/sk:fr",
    ' id="FR-A-1"',
    "spec-kitty:",
    " ",
    "\n",
    "\n",
    "```",
    "`",
    "- ",
    "FR-A-2",
    "x",
)


@given(text=st.lists(st.sampled_from(MARKUP), max_size=40).map("".join))
def test_no_markup_breaks_the_reader_of_annotations(text: str) -> None:
    spec = read_spec(text)
    assert len({requirement.id for requirement in spec.requirements}) == len(spec.requirements)
    assert all(found.line >= 1 for found in spec.findings)
