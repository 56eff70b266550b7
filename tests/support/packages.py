"""Work packages for tests: the login form of the dispatch specification, and strategies for any other."""

from __future__ import annotations

from hypothesis import strategies as st

from phasegate.core.plan.work_package import Deliverables, PackageChecks, WorkPackage
from phasegate.prompts.package_writer import PackagePlan
from phasegate.prompts.profiles import Profile

LOGIN_FORM = WorkPackage(
    work_package_id="WP01",
    title="Implement Login Form Component",
    feature_slug="001-user-login",
    feature_title="User Login System",
    mission=(
        "Build a React login form component that supports email/password authentication with validation and error "
        "display. This is the user-facing entry point for the authentication system."
    ),
    file_scope=(
        "src/components/LoginForm.tsx",
        "src/components/__tests__/LoginForm.test.tsx",
        "src/components/LoginForm.md",
        "src/hooks/useLogin.ts",
        "src/hooks/__tests__/useLogin.test.ts",
        "src/styles/LoginForm.module.css",
    ),
    deliverables=Deliverables(
        code=(
            "src/components/LoginForm.tsx",
            "src/hooks/useLogin.ts",
            "src/styles/LoginForm.module.css",
        ),
        tests=(
            "src/components/__tests__/LoginForm.test.tsx",
            "src/hooks/__tests__/useLogin.test.ts",
        ),
        documentation=("src/components/LoginForm.md",),
    ),
    descriptions={
        "src/components/LoginForm.tsx": "React component with form validation",
        "src/hooks/useLogin.ts": "Custom hook for login mutation",
        "src/styles/LoginForm.module.css": "Component styles",
        "src/components/__tests__/LoginForm.test.tsx": "Unit tests (>80% coverage)",
        "src/hooks/__tests__/useLogin.test.ts": "Hook tests",
        "src/components/LoginForm.md": "Component storybook",
    },
    requirements=("FR-AUTH-001", "FR-AUTH-002", "FR-AUTH-003", "FR-AUTH-004"),
    tasks=("1.1", "2.1"),
    profile="typescript",
    checks=PackageChecks(
        test="npm run test", lint="npm run lint", typecheck="npm run typecheck", coverage_min=80
    ),
    allowed_dependencies=("react", "react-dom", "zod (validation)"),
    forbidden_dependencies=("external auth libs (use auth.ts service)",),
    frozen_files=("tsconfig.json", "package.json root entries"),
    architecture_rules=(
        "Use existing `src/services/auth.ts` service (do NOT rewrite)",
        "Use Tailwind CSS for styling (do NOT add CSS-in-JS)",
        "Use React hooks, not class components",
        "All async operations must use proper error boundaries",
        "No unhandled promise rejections",
    ),
    quality_rules=("No console errors/warnings in test runs",),
)

LOGIN_REQUIREMENTS = {
    "FR-AUTH-001": "Form must validate email format (RFC 5322)",
    "FR-AUTH-002": "Password must be at least 8 characters",
    "FR-AUTH-003": "Error messages must display inline under invalid fields",
    "FR-AUTH-004": "Form must disable submit button while request is in-flight",
}


def login_plan(profile: Profile | None = None) -> PackagePlan:
    """The plan around the login form."""
    return PackagePlan(
        created="2025-01-15T10:30:00Z",
        base_branch="feat/001-user-login",
        commands={
            "setup": "npm install",
            "typecheck": "npm run typecheck",
            "lint": "npm run lint",
            "test": "npm run test",
            "coverage": "npm run test -- --coverage",
            "build": "npm run build",
        },
        requirement_texts=LOGIN_REQUIREMENTS,
        documents={
            "spec.md": ("Full feature mission and user stories",),
            "plan.md": (
                "Work breakdown: WP01 through WP03",
                "Dependencies and parallelization strategy",
            ),
            "ARCHITECTURE.md": (),
            "GOVERNANCE.md": ("Non-repudiation audit log format",),
        },
        profile=profile,
    )


def minimal(**fields: object) -> WorkPackage:
    """The smallest sound package, with some fields changed."""
    known: dict[str, object] = {
        "work_package_id": "WP01",
        "title": "One",
        "feature_slug": "001-one",
        "file_scope": ("src/one.py",),
    }
    return WorkPackage(**{**known, **fields})  # type: ignore[arg-type]


NAMES = st.from_regex(r"[a-z_][a-z0-9_.-]{0,6}[a-z0-9_]", fullmatch=True).filter(
    lambda n: n not in ("target", "coverage")
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
_CONTROL = [chr(c) for c in (*range(32), *range(0x7F, 0xA0))]
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=_CONTROL), max_size=40)
WORDS = LINES.filter(lambda text: bool(text.strip()))
SLUGS = st.from_regex(r"[0-9]{3}-[a-z0-9]{1,8}(-[a-z0-9]{1,8})?", fullmatch=True)
COMMANDS = st.none() | LINES


@st.composite
def work_packages(draw: st.DrawFn) -> WorkPackage:
    """Any sound package."""
    code, tests, documents = (draw(st.lists(PATHS, max_size=3, unique=True)) for _ in range(3))
    code = [f"src/{path}.x" for path in code]
    tests = [f"tests/{path}.x" for path in tests]
    documents = [f"docs/{path}.md" for path in documents]
    files = (*code, *tests, *documents)
    percent = draw(st.none() | st.integers(0, 10_000).map(lambda n: n / 100))
    lists = {
        name: tuple(draw(st.lists(WORDS, max_size=2, unique=True)))
        for name in (
            "allowed_dependencies",
            "forbidden_dependencies",
            "architecture_rules",
            "quality_rules",
            "frozen_files",
        )
    }
    return WorkPackage(
        work_package_id=f"WP{draw(st.integers(2, 2000)):02}",
        title=draw(WORDS),
        feature_slug=draw(SLUGS),
        feature_title=draw(LINES),
        mission="\n".join(draw(st.lists(LINES, max_size=3))),
        file_scope=(*files, "src/**", "lib/"),
        dependencies=("WP01",) if draw(st.booleans()) else (),
        deliverables=Deliverables(tuple(code), tuple(tests), tuple(documents)),
        descriptions={path: draw(LINES) for path in files if draw(st.booleans())},
        requirements=tuple(
            draw(
                st.lists(
                    st.from_regex(r"FR-[A-Z]{2,5}-[0-9]{3}", fullmatch=True),
                    max_size=3,
                    unique=True,
                )
            )
        ),
        tasks=tuple(
            draw(
                st.lists(st.from_regex(r"[1-4]\.[1-9]0?", fullmatch=True), max_size=3, unique=True)
            )
        ),
        profile=draw(st.sampled_from(["", "rust", "python", "typescript", "go"])),
        checks=PackageChecks(
            setup=draw(COMMANDS), test=draw(COMMANDS), lint=draw(COMMANDS), coverage_min=percent
        ),
        num_agents=draw(st.integers(1, 16)),
        executable_files=tuple(code[:1]),
        **lists,
    )
