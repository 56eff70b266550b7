"""GitHub's objects, whole, as its published description has them; Prism holds them against it (tests/forges)."""

from __future__ import annotations

Json = dict[str, object]
TIME = "2026-01-01T00:00:00Z"
_USER = "avatar_url events_url followers_url following_url gists_url html_url organizations_url received_events_url"
_USER += " repos_url starred_url subscriptions_url url"
_BRIEF = "archive_url assignees_url blobs_url branches_url collaborators_url comments_url commits_url compare_url"
_BRIEF += " contents_url contributors_url deployments_url downloads_url events_url forks_url git_commits_url"
_BRIEF += " git_refs_url git_tags_url hooks_url html_url issue_comment_url issue_events_url issues_url keys_url"
_BRIEF += (
    " labels_url languages_url merges_url milestones_url notifications_url pulls_url releases_url"
)
_BRIEF += (
    " stargazers_url statuses_url subscribers_url subscription_url tags_url teams_url trees_url url"
)
_NUMBERS = (
    "forks forks_count open_issues open_issues_count size stargazers_count watchers watchers_count"
)
_FLAGS = "has_downloads has_issues has_projects has_wiki has_pages archived disabled"
_LINKS = "comments commits statuses html issue review_comments review_comment self"


def _urls(url: str, names: str) -> Json:
    return dict.fromkeys(names.split(), url)


def user(url: str, login: str) -> Json:
    fixed = {
        "gravatar_id": None,
        "id": sum(map(ord, login)),
        "node_id": f"U_{login}",
        "site_admin": False,
    }
    return {**_urls(f"{url}/{login}", _USER), **fixed, "login": login, "type": "User"}


def brief_repository(url: str, name: str) -> Json:
    owner, _, short = name.partition("/")
    fixed = {
        "description": None,
        "fork": False,
        "full_name": name,
        "id": 1,
        "node_id": "R_1",
        "private": False,
    }
    return {**_urls(f"{url}/{name}", _BRIEF), **fixed, "name": short, "owner": user(url, owner)}


def _repository(url: str, name: str) -> Json:
    """A whole one, as a pull request has it for its head and its base."""
    counts: Json = dict.fromkeys(_NUMBERS.split(), 0)
    flags: Json = dict.fromkeys(_FLAGS.split(), False)
    nothing: Json = dict.fromkeys(("homepage", "language", "mirror_url", "license"))
    times = dict.fromkeys(("pushed_at", "created_at", "updated_at"), TIME)
    places = _urls(f"{url}/{name}", "clone_url git_url ssh_url svn_url")
    return {
        **brief_repository(url, name),
        **counts,
        **flags,
        **nothing,
        **times,
        **places,
        "default_branch": "main",
    }


def pull(url: str, name: str, state: Json, head: tuple[str, str], base: tuple[str, str]) -> Json:
    """`state` is what differs between pull requests; head and base are a branch and its commit."""
    places = "comments_url commits_url diff_url html_url issue_url patch_url review_comment_url review_comments_url"
    here = f"{url}/{name}/pull/{state['number']}"
    ends = {
        side: {
            "label": f"{name.partition('/')[0]}:{branch}",
            "ref": branch,
            "sha": commit,
            "repo": _repository(url, name),
            "user": user(url, "team"),
        }
        for side, (branch, commit) in (("head", head), ("base", base))
    }
    nothing: Json = dict.fromkeys(("assignee", "closed_at", "milestone", "auto_merge", "merged_by"))
    counts: Json = dict.fromkeys(
        ("additions", "changed_files", "commits", "deletions", "review_comments"), 0
    )
    return {
        **_urls(here, f"{places} statuses_url url"),
        **ends,
        **nothing,
        **counts,
        "id": state["number"],
        "comments": 0,
        "_links": {link: {"href": here} for link in _LINKS.split()},
        "labels": [],
        "created_at": TIME,
        "updated_at": TIME,
        "locked": False,
        "user": user(url, "owner"),
        "author_association": "MEMBER",
        "mergeable_state": "clean",
        "maintainer_can_modify": False,
        **state,
    }


def written(url: str, number: int, author: str, more: Json) -> Json:
    """A comment or a review: by somebody, about a pull request."""
    links = {name: {"href": url} for name in ("self", "html", "pull_request")}
    return {
        **_urls(url, "url html_url issue_url pull_request_url"),
        "id": number,
        "node_id": f"C_{number}",
        "user": user(url, author),
        "author_association": "MEMBER",
        "created_at": TIME,
        "updated_at": TIME,
        "_links": links,
        **more,
    }


def label(url: str, name: str) -> Json:
    fixed = {"id": 7, "node_id": "L_7", "description": "", "color": "ededed", "default": False}
    return {**fixed, "url": f"{url}/labels/{name}", "name": name}


def issue(url: str, number: int, title: str, body: str, labels: list[str]) -> Json:
    places = "url repository_url labels_url comments_url events_url html_url"
    nothing: Json = dict.fromkeys(("assignee", "closed_at", "milestone"))
    return {
        **_urls(f"{url}/issues/{number}", places),
        **nothing,
        "id": number,
        "node_id": f"I_{number}",
        "number": number,
        "title": title,
        "body": body,
        "labels": [label(url, name) for name in labels],
        "state": "open",
        "locked": False,
        "comments": 0,
        "user": user(url, "ada"),
        "created_at": TIME,
        "updated_at": TIME,
    }


def status(url: str, context: str, state: str) -> Json:
    return {
        "url": url,
        "avatar_url": url,
        "id": 1,
        "node_id": "S_1",
        "state": state,
        "description": "as told",
        "target_url": None,
        "context": context,
        "created_at": TIME,
        "updated_at": TIME,
        "creator": user(url, "grace"),
    }
