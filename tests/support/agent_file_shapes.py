"""Shapes of agent files, with the place where the prompt section is due, and the names of the shipped ones (N10)."""

HERE = "<HERE>\n"

# Each shape shows where the section is due; without the mark it is the file before.
SHAPES = {
    "validation, then closing line": "# ROLE\n\ntext\n\n# SELF-VALIDATION\n\n- [ ] done?\n\n<HERE>\n\nYou are it.\n",
    "closing line of two lines": "# SELF-VALIDATION\n\n- a\n\n<HERE>\n\nYou are it,\nand that is all.\n",
    "sections after the validation": "# SELF-VALIDATION\n\n- a\n\n<HERE>\n\n# SKILLS\n\n| a |\n|---|\n\nYou are it.\n",
    "no validation, closing line": "# ROLE\n\n- do\n\n<HERE>\n\nYou are it.\n",
    "no closing line, list at the end": "# ROLE\n\ntext\n\n# SELF-VALIDATION\n\n- [ ] done?\n- [ ] sure?\n\n<HERE>\n",
    "no closing line, table at the end": "# SELF-VALIDATION\n\n- a\n\n# SKILLS\n\n| id |\n|---|\n| a |\n\n<HERE>\n",
    "table without outer bars": "# SKILLS\n\nid | use\n--- | ---\na | b\n\n<HERE>\n",
    "fence at the end": "# ROLE\n\ntext\n\n```\ncode\n```\n\n<HERE>\n",
    "heading at the end": "# ROLE\n\n## Notes\n\n<HERE>\n",
    "indented text of a list item": "# ROLE\n\n- one\n\n  more of one\n\n<HERE>\n",
    "lazy text of a list item": "# ROLE\n\n1. one\ntwo\n\n<HERE>\n",
    "underlined heading at the end": "# ROLE\n\nNotes\n-----\n\n<HERE>\n",
    "underlined validation": "SELF-VALIDATION\n===\n\n- a\n\n<HERE>\n\nSkills\n===\n\n- b\n\nYou are it.\n",
    "underlined validation of one paragraph": "SELF-VALIDATION\n=====\n\nCheck everything twice.\n\n<HERE>\n",
    "rule at the end": "# ROLE\n\ntext\n\n***\n\n<HERE>\n",
    "indented code at the end": "# ROLE\n\n- x\n\ntext\n\n    code\n\n<HERE>\n",
    "comment at the end": "# ROLE\n\ntext\n\n<!-- the end -->\n\n<HERE>\n",
    "validation that is one paragraph": "# SELF-VALIDATION\n\nCheck everything twice.\n\n<HERE>\n",
    "nothing but a closing line": "<HERE>\n\nYou are it.\n",
    "empty file": "<HERE>\n",
    "front matter only": "---\nname: x\n---\n\n<HERE>\n",
    "front matter and closing line": "---\nname: x\n---\n\n<HERE>\n\nYou are it.\n",
    "heading in a fence": "# A\n\n```\n# SELF-VALIDATION\n```\n\n# B\n\n- b\n\n<HERE>\n\nYou are it.\n",
    "heading in a tilde fence": "# A\n\n~~~md\n```\n# SELF-VALIDATION\n~~~\n\n- b\n\n<HERE>\n\nIt.\n",
    "a shorter fence does not close": "````\n```\n# SELF-VALIDATION\n````\n\n- b\n\n<HERE>\n\nYou are it.\n",
    "our heading in a fence": "# A\n\n```\n# SUGGESTED PROMPTS\n```\n\n<HERE>\n",
    "our heading in a comment": "# A\n\n<!--\n# SUGGESTED PROMPTS\n-->\n\n<HERE>\n",
    "a fence ends with its list": "- ```\n  # x\n  ```\n\n# SELF-VALIDATION\n\n- a\n\n<HERE>\n\nYou are it.\n",
    "inline backticks open no fence": "```x``` is code\n\n# SELF-VALIDATION\n\n- a\n\n<HERE>\n\nYou are it.\n",
    "validation as a second-level heading": "# A\n\n## SELF-VALIDATION\n\n- a\n\n# B\n\n- b\n\n<HERE>\n\nYou are it.\n",
    "validation in other letters": "# Self-validation\n\n- a\n\n# B\n\n- b\n\n<HERE>\n\nYou are it.\n",
}


def unmarked(shape: str) -> str:
    """The file before: blank lines around the mark are part of the section's place."""
    before, _, after = shape.partition(HERE)
    return before + after.removeprefix("\n") if before else after.removeprefix("\n")


PROTOCOL_PLACES = {
    "between governance and progress": (
        "# CONSTITUTIONAL GOVERNANCE\n\nlaw\n\n<HERE>\n\n# PROGRESS TRACKING (TASK LIST)\n\n- x\n\nBye.\n"
    ),
    "governance only": "# CONSTITUTIONAL GOVERNANCE\n\nlaw\n\n<HERE>\n\n# QUALITY STANDARDS\n\n- x\n\nBye.\n",
    "governance last": "# CONSTITUTIONAL GOVERNANCE\n\n- law\n\n<HERE>\n\nBye.\n",
    "progress only": "# ROLE\n\ntext\n\n<HERE>\n\n# PROGRESS TRACKING (TASK LIST)\n\n- x\n\nBye.\n",
    "neither": "# ROLE\n\n- a\n\n# SELF-VALIDATION\n\n- b\n\n<HERE>\n\nBye.\n",
    "neither, no closing line": "# ROLE\n\n- a\n\n<HERE>\n",
    "headings in fences": "~~~\n# CONSTITUTIONAL GOVERNANCE\n~~~\n\n# ROLE\n\n- a\n\n<HERE>\n\nBye.\n",
}

# The beginnings of the closing lines, as the interface specification quotes them; None: it ends without one.
CLOSING_LINES = {
    "01-requirements-analyst": "You are the foundation of the SDLC",
    "02-solution-architect": "You are the technical foundation of the project",
    "03-system-designer": "You translate architecture into actionable designs",
    "04-test-design-engineer": "You ensure quality is designed in from the start",
    "05-software-developer": "You bring designs to life with clean, tested",
    "06-integration-tester": "You validate that the system works as an integrated whole",
    "07-qa-engineer": "You are the quality gatekeeper ensuring code excellence",
    "08-security-compliance-auditor": "You are the last line of defense before deployment",
    "09-cicd-engineer": "You enable continuous delivery with automated, reliable pipelines.",
    "10-dev-environment-engineer": "You build and launch reliable environments",
    "11-deployment-engineer-staging": "You validate deployment procedures in staging",
    "12-release-manager": "You orchestrate production releases with precision",
    "13-site-reliability-engineer": "You are the guardian of production",
    "14-upgrade-engineer": None,
    "quick-scan-agent": "You provide just enough context for requirements gathering",
}
SUB_AGENTS = {
    "discover-orchestrator": [
        *["architecture-analyzer", "test-evaluator", "constitution-generator", "skills-researcher"],
        *["data-model-analyzer", "product-analyst", "architecture-designer", "feature-mapper"],
        *["characterization-test-generator", "artifact-integration", "atdd-bridge"],
    ],
    "impact-analysis-orchestrator": ["impact-analyzer", "entry-point-finder", "risk-assessor"],
    "tracing-orchestrator": ["symptom-analyzer", "execution-path-tracer", "root-cause-identifier"],
}
