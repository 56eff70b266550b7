"""Define glob patterns, safe repository paths, and the file scope of a work package."""
