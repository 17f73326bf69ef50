"""All rings of tests."""
