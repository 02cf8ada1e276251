"""What happens to a document once it is its turn: facts of a file, extractors, a folder of documents."""
