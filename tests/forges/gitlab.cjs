// Prints the method and path of each call of GitLab's client package that our adapter has a part in. Nothing is sent.
const { Gitlab } = require("@gitbeaker/rest");

const asked = [];
globalThis.fetch = async (request) => {
  asked.push([request.method, new URL(request.url).pathname]);
  return new Response("[]", { headers: { "content-type": "application/json" } });
};
const api = new Gitlab({ host: "http://127.0.0.1:9", token: "none" });
const project = "team/greet";
const calls = [
  () => api.Users.all({ username: "ada" }),
  () => api.MergeRequests.all({ projectId: project, sourceBranch: "one" }),
  () => api.MergeRequests.create(project, "one", "main", "One"),
  () => api.MergeRequests.show(project, 1),
  () => api.MergeRequests.edit(project, 1, { title: "One" }),
  () => api.MergeRequests.accept(project, 1, { sha: "0" }),
  () => api.MergeRequests.showReviewers(project, 1),
  () => api.MergeRequests.allDiffVersions(project, 1),
  () => api.MergeRequestApprovals.showConfiguration(project, { mergerequestIId: 1 }),
  () => api.MergeRequestApprovals.showConfiguration(project),
  () => api.MergeRequestApprovals.showApprovalState(project, 1),
  () => api.MergeRequestDiscussions.all(project, 1),
  () => api.MergeRequestDiscussions.addNote(project, 1, "1", "Done"),
  () => api.MergeRequestNotes.create(project, 1, "Done"),
  () => api.MergeTrains.showStatus(project, 1),
  () => api.MergeTrains.addMergeRequest(project, 1, { sha: "0" }),
  () => api.ProjectMembers.show(project, 1, { includeInherited: true }),
  () => api.Commits.editStatus(project, "0", "success"),
  () => api.Commits.allStatuses(project, "0"),
  () => api.Issues.all({ projectId: project }),
  () => api.Issues.show(1, { projectId: project }),
];
calls.reduce((before, call) => before.then(call), Promise.resolve()).then(() => console.log(JSON.stringify(asked)));
