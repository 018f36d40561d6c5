"""The intermediate representations: data only, no primitive and no backend."""
