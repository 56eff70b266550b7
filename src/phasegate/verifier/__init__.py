"""A program of one file that verifies receipts without Phasegate; users may copy it."""
