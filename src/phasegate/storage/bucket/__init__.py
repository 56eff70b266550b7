"""Object storage (S3): copies of the journal and trails, and the shared journal of a fleet."""
