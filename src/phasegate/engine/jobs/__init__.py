"""One agent run (job): admission, prompt, sandbox, trail, result; and the pool that runs several."""
