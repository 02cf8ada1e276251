"""The version of the package; here, so that every layer can read it without importing the package's front door."""

__version__ = "0.1.0"
