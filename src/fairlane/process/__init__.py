"""What happens to a document once it is its turn."""
