"""The version of the package; here, so that every layer can read it without importing the package's front door."""

__version__ = "1.0.0rc1"
