"""Use object storage (S3) for copies of the journal and trails, and for the shared journal of a
fleet.
"""
