"""GitLab's objects as its client package types them (tests/forges)."""

from __future__ import annotations

Json = dict[str, object]
TIME = "2026-01-01T00:00:00.000Z"


def user_id(name: str) -> int:
    return sum(map(ord, name))


def user(url: str, name: str) -> Json:
    places = {"avatar_url": f"{url}/{name}.png", "web_url": f"{url}/{name}"}
    return {
        "id": user_id(name),
        "name": name,
        "username": name,
        "state": "active",
        "created_at": TIME,
        **places,
    }


def found_user(url: str, name: str) -> Json:
    """As a search for people answers it."""
    nothing = "locked bio bot location public_email skype linkedin twitter discord website_url pronouns organization"
    nothing += " job_title work_information followers following local_time is_followed"
    return {**user(url, name), **dict.fromkeys(nothing.split())}


def brief_merge(url: str, number: int, title: str, body: str, state: str) -> Json:
    return {
        "id": 1000 + number,
        "iid": number,
        "project_id": 1,
        "title": title,
        "description": body,
        "state": state,
        "created_at": TIME,
        "updated_at": TIME,
        "web_url": url,
    }


def merge(forge: str, brief: Json, head: str, more: Json) -> Json:
    nothing = "merged_by merged_at closed_by closed_at assignee milestone squash_commit_sha discussion_locked"
    nothing += (
        " should_remove_source_branch prepared_at approvals_before_merge latest_build_started_at"
    )
    nothing += " latest_build_finished_at first_deployed_to_production_at pipeline head_pipeline merge_error"
    iid = brief["iid"]
    stats = {
        "time_estimate": 0,
        "total_time_spent": 0,
        "human_time_estimate": None,
        "human_total_time_spent": None,
    }
    return {
        **brief,
        **dict.fromkeys(nothing.split()),
        **dict.fromkeys(("user_notes_count", "upvotes", "downvotes"), 0),
        "author": user(forge, "owner"),
        "assignees": [],
        "reviewers": [],
        "source_project_id": 1,
        "target_project_id": 1,
        "merge_status": "can_be_merged",
        "sha": head,
        "force_remove_source_branch": False,
        "reference": f"!{iid}",
        "references": {"short": f"!{iid}", "relative": f"!{iid}", "full": f"team/greet!{iid}"},
        "time_stats": stats,
        "squash": False,
        "task_completion_status": {"count": 0, "completed_count": 0},
        "has_conflicts": False,
        "blocking_discussions_resolved": True,
        "subscribed": False,
        "changes_count": "1",
        "diff_refs": {"base_sha": head, "head_sha": head, "start_sha": head},
        "first_contribution": False,
        "user": {"can_merge": True},
        **more,
    }


def note(forge: str, number: int, author: str, text: str, more: Json) -> Json:
    return {
        "id": number,
        "type": None,
        "body": text,
        "attachment": None,
        "author": user(forge, author),
        "created_at": TIME,
        "updated_at": TIME,
        "system": False,
        "noteable_id": 1001,
        "noteable_type": "MergeRequest",
        "noteable_iid": 1,
        "project_id": 1,
        "resolvable": False,
        **more,
    }


def version(number: int, head: str, at: str) -> Json:
    return {
        "id": number,
        "head_commit_sha": head,
        "base_commit_sha": head,
        "start_commit_sha": head,
        "created_at": at,
        "merge_request_id": 1001,
        "state": "collected",
        "real_size": "1",
    }


def status(forge: str, commit: str, name: str, state: str) -> Json:
    return {
        "id": 1,
        "sha": commit,
        "ref": "main",
        "status": state,
        "name": name,
        "target_url": forge,
        "created_at": TIME,
        "allow_failure": False,
        "author": user(forge, "owner"),
    }


def issue(forge: str, number: int, title: str, text: str, labels: list[str]) -> Json:
    here = f"{forge}/-/issues/{number}"
    stats = {
        "time_estimate": 0,
        "total_time_spent": 0,
        "human_time_estimate": None,
        "human_total_time_spent": None,
    }
    return {
        **brief_merge(here, number, title, text, "opened"),
        **dict.fromkeys(("upvotes", "downvotes", "merge_requests_count", "user_notes_count"), 0),
        **dict.fromkeys(("has_tasks", "confidential", "discussion_locked", "subscribed"), False),
        "author": user(forge, "ada"),
        "type": "ISSUE",
        "labels": labels,
        "due_date": "2026-01-01",
        "references": {
            "short": f"#{number}",
            "relative": f"#{number}",
            "full": f"team/greet#{number}",
        },
        "time_stats": stats,
        "task_status": "",
        "_links": dict.fromkeys(("self", "notes", "award_emoji", "project"), here),
        "task_completion_status": {"count": 0, "completed_count": 0},
    }


def train(forge: str, brief: Json, branch: str, head: str) -> Json:
    """A car of a merge train. Its pipeline has begun; it has not been merged."""
    pipeline = {
        "id": 1,
        "iid": 1,
        "project_id": 1,
        "sha": head,
        "ref": branch,
        "status": "running",
        "source": "push",
    }
    times = {"created_at": TIME, "updated_at": TIME}
    return {
        "id": 1,
        "merge_request": brief,
        "user": user(forge, "owner"),
        "pipeline": {**pipeline, **times, "web_url": forge},
        **times,
        "target_branch": branch,
        "status": "fresh",
        "merged_at": "",
        "duration": 0,
    }
