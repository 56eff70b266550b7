"""Run agent jobs: admission, prompt, sandbox, trail, end; and the pool that runs several at once.

A rate limit is handled in these steps:

1. `agents/stream`: the harness reads the output of the agent (`rate_limit_reset` parses texts such
   as "try again in 2 hours") and reports `Ending.RATE_LIMITED`, or `Ending.SILENT` if the
   model never answered, with `retry_at_s` if a reset time is known.
2. `core/machine/rate_limit_wait` decides from the reset time, or from a back-off, whether to wait.
   `jobs/job_end.interpret_job_end` ends the job as `JobEndKind.RATE_LIMITED`. If the wait is too
   long and no fallback agent is available, the job has FAILED.
3. `jobs/run_job`: the job row stores `retry_at_s`; `RecordReader.rate_limited_agents` and
   `count_consecutive_limits` read it from there.
4. `core/machine/retry`: the job is started again without using up a retry.
5. `project/agents.choose_agent`: until the limit ends, the fallback agent takes the job.
6. `drive/agent_wait`: without an available fallback, it reports "rate-limited until ..." once and
   waits.
7. `views`: `status` lists the agents that are rate-limited.
"""
