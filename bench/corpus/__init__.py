"""A corpus of known structure, written by other programs, and how much of it Fairlane, pandoc and markitdown find."""
