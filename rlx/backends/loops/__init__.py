"""What backends that spell loop nests share: staging, the walk over a nest, dialects."""
