"""What happens to a document: extractors, and the child that runs them."""
