"""Sample documents to try Fairlane with."""
