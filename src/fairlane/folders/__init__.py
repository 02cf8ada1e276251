"""Folders of documents, as `fairlane process` uses them: scan, track progress, write outputs."""
